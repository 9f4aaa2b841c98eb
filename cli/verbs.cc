// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/base/file/result_file.h"

namespace trireme {

std::string parse_problem(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& more) {
  std::vector<const CLI::App*> apps{&app};
  for (const CLI::App* sub : app.get_subcommands()) apps.push_back(sub);
  std::vector<std::string> known = more, unknown;
  for (const CLI::App* one : apps) {
    for (const CLI::Option* option : one->get_options())
      for (const auto& name : option->get_lnames()) known.push_back("--" + name);
    for (const auto& word : one->remaining())
      if (word.rfind("--", 0) == 0) unknown.push_back(word.substr(0, word.find('=')));
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !unknown.empty())
    return fmt::format("there is no flag {}{}", unknown[0], did_you_mean(unknown[0], known));
  return error.what();
}

void write_json(const std::string& file, const nlohmann::ordered_json& value) {
  std::string text =
      value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (file != "-") return write_result_file(file, text);
  bool ok =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  check<ResourceError>(ok, "cannot write to stdout: {}", errno_text());
}

void check_json_file(const std::string& file) {
  if (!file.empty() && file != "-") check_result_file(file);
}

JsonAndHelp parse_json_and_help(int argc, char** argv, const char* help) {
  JsonAndHelp result;
  auto words = words_of(argc, argv);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-h" || word == "--help") {
      std::fputs(help, stdout);
      result.done = true;
      return result;
    }
    if (word == "--json") {
      check<UsageError>(i + 1 < words.size(), "--json needs a file ('-' is stdout)");
      result.json = words[++i];
    } else if (word.starts_with("--json=")) {
      result.json = word.substr(7);
    } else {
      fail<UsageError>("trireme {} does not know '{}'{}; it takes --json FILE and --help", argv[0],
                       word, did_you_mean(word, {"--json", "--help"}));
    }
    check<UsageError>(!result.json.empty(), "--json needs a file ('-' is stdout)");
  }
  return result;
}

}  // namespace trireme
