// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/verbs.h"
#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/comm/flight/dump_reader.h"
#include "trireme/comm/flight/verdict.h"

namespace trireme {
namespace {

const char kTraceHelp[] =
    R"(What ranks did last, from what they wrote down.

Usage: trireme trace flight DIR [FLAGS]

DIR holds the dumps of the flight recorder (*.flight, one for each rank and group). Ranks write them when a group
fails, on SIGUSR2, on fatal signals: where TRIREME_FLIGHT_DIR says; else, under trireme train, in RUN-DIR/flight, and
under trireme run in the folder flight beside its logs, where it keeps logs.
The first line says in one sentence which rank diverged first, and how; then come the last calls of each rank.

Flags:
  --last N               calls to show of each rank [5]
  --allow-incomplete     exit code 0 although ranks are missing in DIR
  --json FILE            the same as JSON; '-' is stdout, and then nothing else is printed
  -h, --help

Exit code: 0 the dumps were read, 1 damaged or (without --allow-incomplete) missing dumps, 2 usage, or dumps of a newer
Trireme.
)";

struct TraceFlags {
  std::string folder, json;
  int last = 5;
  bool allow_incomplete = false, help = false;
};

TraceFlags parse_trace_flags(const std::vector<std::string>& words) {
  TraceFlags f;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i], value;
    const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
      word.resize(equals);
    }
    const auto next = [&] {
      if (equals != std::string::npos) return value;
      check<UsageError>(i + 1 < words.size(), "{} needs a value", word);
      return words[++i];
    };
    if (word == "-h" || word == "--help") {
      f.help = true;
    } else if (word == "--allow-incomplete") {
      check<UsageError>(equals == std::string::npos, "--allow-incomplete takes no value");
      f.allow_incomplete = true;
    } else if (word == "--json") {
      f.json = next();
      check<UsageError>(!f.json.empty(), "--json needs a file ('-' is stdout)");
    } else if (word == "--last") {
      const std::string text = next();
      check<UsageError>(!text.empty() && text.size() <= 4 &&
                            text.find_first_not_of("0123456789") == std::string::npos,
                        "--last {}: a number of calls, up to 9999", text);
      f.last = std::stoi(text);
    } else {
      if (word.starts_with("-"))
        fail<UsageError>("trireme trace flight does not know '{}'{}", word,
                         did_you_mean(word, {"--allow-incomplete", "--json", "--last", "--help"}));
      check<UsageError>(f.folder.empty(), "trireme trace flight takes one folder: '{}' and '{}'",
                        f.folder, word);
      f.folder = word;
    }
  }
  check<UsageError>(f.help || !f.folder.empty(),
                    "name the folder with the dumps, as in 'trireme trace flight runs/x/flight'");
  return f;
}

nlohmann::ordered_json json_of(const flight::Entry& e) {
  nlohmann::ordered_json j{{"seq", e.seq},
                           {"op", name_of(e.op)},
                           {"dtype", flight::name_of(e.dtype)},
                           {"count", e.count},
                           {"reduction", name_of(e.red)},
                           {"root", e.root},
                           {"tag", e.tag},
                           {"site", e.site},
                           {"text", flight::text_of(e)},
                           {"posted", e.posted}};
  j["done"] = e.done > 0 ? nlohmann::ordered_json(e.done) : nlohmann::ordered_json();
  return j;
}

nlohmann::ordered_json json_of(const flight::Verdict& verdict,
                               const std::vector<flight::History>& all, int last) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const auto& h : all) {
    nlohmann::ordered_json rank{
        {"group", h.group},           {"rank", h.rank},       {"size", h.size},
        {"world_rank", h.world_rank}, {"pid", h.pid},         {"host", h.host},
        {"backend", h.backend},       {"written", h.written}, {"written_by", h.writer},
        {"signal", h.signal},         {"why", h.why}};
    for (auto [name, entries] : {std::pair{"calls", &h.calls}, {"messages", &h.pairs}}) {
      auto list = nlohmann::ordered_json::array();
      const size_t n = entries->size(), most = static_cast<size_t>(last);
      for (size_t i = n > most ? n - most : 0; i < n; ++i) list.push_back(json_of((*entries)[i]));
      rank[name] = list;
    }
    ranks.push_back(rank);
  }
  return {{"verdict", flight::name_of(verdict.kind)},
          {"sentence", verdict.sentence},
          {"group", verdict.group},
          {"rank", verdict.rank},
          {"seq", verdict.seq},
          {"missing", verdict.absent},
          {"ranks", ranks}};
}

std::string joined(const std::vector<std::string>& words) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < words.size() && i < kMost; ++i) text += (i ? ", " : "") + words[i];
  if (words.size() > kMost) text += fmt::format(" and {} more", words.size() - kMost);
  return text;
}

int flight_verb(const std::vector<std::string>& words) {
  const TraceFlags flags = parse_trace_flags(words);
  if (flags.help) {
    std::fputs(kTraceHelp, stdout);
    return kExitDone;
  }
  const auto all = flight::read_dumps(flags.folder);
  const auto verdict = flight::judge(all);
  if (flags.json != "-")
    fmt::print("{}\n\n{}", verdict.sentence, flight::last_calls(all, flags.last));
  std::fflush(stdout);
  if (!flags.json.empty()) write_json(flags.json, json_of(verdict, all, flags.last));
  if (verdict.absent.empty()) return kExitDone;
  const std::string missing = joined(verdict.absent);
  if (flags.allow_incomplete) {
    log_warn("no dump of {} is in {}: judged without", missing, flags.folder);
    return kExitDone;
  }
  log_error(
      "no dump of {} is in {}: what stands above was judged without. Add the dumps (ranks on other "
      "hosts wrote theirs there), or say --allow-incomplete",
      missing, flags.folder);
  return kExitFailed;
}

}  // namespace

int trace_main(int argc, char** argv) {
  auto words = words_of(argc, argv);
  if (words.empty() || words[0] == "-h" || words[0] == "--help") {
    std::fputs(kTraceHelp, stdout);
    return words.empty() ? kExitUsage : kExitDone;
  }
  check<UsageError>(words[0] == "flight", "trireme trace reads 'flight' dumps, not '{}'", words[0]);
  words.erase(words.begin());
  return flight_verb(words);
}

}  // namespace trireme
