// SPDX-License-Identifier: Apache-2.0
#include "cli/config_verb.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/ask_worker.h"
#include "cli/verbs.h"
#include "trireme/base/error.h"
#include "trireme/base/file/result_file.h"
#include "trireme/config/key_table.h"
#include "trireme/config/report.h"
#include "trireme/front/refusals.h"
#include "trireme/launch/flags/options.h"

namespace trireme {
namespace {

struct Options {
  std::vector<std::string> files;
  std::vector<std::string> sets;
  int world = 0;
  std::string ranks;  // --nproc-per-node, as train takes it; "": not given
  std::string json;
};

void add_options(CLI::App* verb, Options* options) {
  verb->add_option("FILE", options->files,
                   "configuration files; a later one overrides an earlier one");
  verb->add_option("--set", options->sets, "KEY=VALUE, over every file; may be repeated")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  verb->add_option("--world", options->world, "data-parallel ranks, to work out the batch sizes")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  verb->add_option("--json", options->json, "write JSON there; - is standard output")
      ->type_name("FILE");
}

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

/// The JSON goes where --json says, the text to the terminal; with `--json -` only the JSON is
/// printed.
void deliver(const Options& options, std::string_view text, std::string_view json) {
  if (options.json == "-") return print(json);
  print(text);
  if (!options.json.empty()) write_result_file(options.json, json);
}

int complain(std::string_view text, int code) {
  std::fflush(stdout);
  fmt::print(stderr, "trireme: error: {}\n", text);
  return code;
}

/// What `trireme train` would refuse on this machine. With --world the ranks are elsewhere.
std::vector<std::string> refused_here(const Options& options, const Config& config, int ranks) {
  if (options.world > 0) return {};
  std::vector<std::string> refused;
  const bool given = !options.ranks.empty();
  if (given) refused = refusals_of(config, ranks);
  const DeviceAnswer device = find_device(config, {.ranks = given ? ranks : 1}, ask_worker);
  if (!device.refusal.empty()) refused.push_back(device.refusal);
  if (!given || device.kind != "cpu") return refused;
  const MemoryCheck memory = check_memory(config, ranks, ranks);
  if (memory.impossible()) refused.push_back(memory.refusal());
  return refused;
}

int check_verb(const Options& options) {
  int ranks = options.world;
  if (!options.ranks.empty())
    ranks = launch::parse_run_options({"--nproc-per-node", options.ranks}).nproc_per_node;
  auto report = check_config(ConfigInputs::from(options.files, options.sets), ranks);
  // With an error in it, what is left of a configuration may be refused for that alone.
  if (report.ok()) report.refused = refused_here(options, report.inspection.config, ranks);
  deliver(options, check_text(report), options.json.empty() ? "" : check_json(report));
  if (report.ok()) return kExitDone;
  int more = report.errors() - 1;
  return complain(
      report.first_error() + (more > 0 ? fmt::format(" (and {} more, above)", more) : ""),
      kExitUsage);
}

int show_verb(const Options& options) {
  auto config = Config::load(ConfigInputs::from(options.files, options.sets));
  std::optional<Batches> batches;
  if (options.world > 0) batches = config.resolve_batches(options.world);
  deliver(options, show_text(config, batches), config.to_json(batches ? &*batches : nullptr));
  return kExitDone;
}

int keys_verb(bool markdown) {
  const KeyTable& table = *KeyTable::built_in();
  print(markdown ? keys_markdown(table) : keys_text(table));
  return kExitDone;
}

}  // namespace

int config_main(int argc, char** argv) {
  CLI::App app("Look at a configuration before training with it.", "trireme config");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  trireme config check examples/gpt.json\n"
      "  trireme config check examples/gpt.json ds_config.json --world 4\n"
      "  trireme config show examples/gpt.json --set optimizer.params.lr=1e-4\n"
      "  trireme config show examples/gpt.json --world 2 --json resolved.json\n"
      "  trireme config keys");
  Options options;
  auto* check = app.add_subcommand(
      "check", "say of each key given: supported, accepted without effect (why), refused (why)");
  auto* show =
      app.add_subcommand("show", "print every value, defaults too, and where it comes from");
  auto* keys =
      app.add_subcommand("keys", "print every key there is: default, values, what it does");
  bool markdown = false;
  keys->add_flag("--markdown", markdown, "as the table of docs/configuration.md");
  for (auto* verb : {check, show}) {
    add_options(verb, &options);
    verb->get_option("FILE")->required();
  }
  check
      ->add_option(
          "--nproc-per-node,--nproc_per_node", options.ranks,
          "ranks on this machine, as `trireme train` takes them: also say what train would "
          "refuse before it starts them")
      ->type_name("N")
      ->excludes("--world");
  check->footer(
      "Examples:\n"
      "  trireme config check ds_config.json\n"
      "  trireme config check examples/gpt.json ds_config.json --world 4 --json -\n"
      "  trireme config check examples/gpt.json --nproc-per-node 2\n"
      "Exit code: 0 when training would start with it, 2 when not.");
  show->footer(
      "Examples:\n"
      "  trireme config show examples/gpt.json\n"
      "  trireme config show examples/gpt.json --set training.steps=100 --world 2 --json "
      "resolved.json");
  try {
    app.parse(argc, argv);
    if (*keys) return keys_verb(markdown);
    return *check ? check_verb(options) : show_verb(options);
  } catch (const CLI::CallForHelp&) {
    print(app.help() + "\n");
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    return complain(parse_problem(app, error) + "; try trireme config --help", kExitUsage);
  } catch (const std::exception& error) {
    return complain(error.what(), exit_code_for(error));
  }
}

}  // namespace trireme
