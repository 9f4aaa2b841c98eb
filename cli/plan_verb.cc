// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/plan_report.h"
#include "cli/verbs.h"
#include "trireme/base/check.h"
#include "trireme/base/file/result_file.h"
#include "trireme/base/log.h"
#include "trireme/pipeline/schedule/check.h"
#include "trireme/pipeline/schedule/csv.h"
#include "trireme/pipeline/schedule/drawing.h"
#include "trireme/pipeline/schedule/generators.h"
#include "trireme/pipeline/schedule/messages.h"
#include "trireme/pipeline/schedule/table_file.h"
#include "trireme/pipeline/schedule/units.h"

namespace trireme {
namespace {

using pipeline::Schedule;

const char kPlanHelp[] =
    R"(Draw a pipeline schedule, say what it costs, and prove or refuse a table of actions.

Usage: trireme plan schedule --name NAME -p RANKS -m MICRO-BATCHES [FLAGS]
       trireme plan schedule --table FILE.csv [FLAGS]
       trireme plan schedule --list

NAME is one of those that --list prints. The drawing has a row for each rank; below it stand the bubble (idle time) of
the step and of each rank, and how many micro-batches' activations are kept. A table is one line a rank in the grammar
of torch.distributed.pipelining, with or without sends and receives; it is checked (complete, ordered, free of deadlock
at any speed of the ranks, messages matched), and where it is wrong the counter-example is drawn.

Examples:
  trireme plan schedule --name 1f1b -p 4 -m 8
  trireme plan schedule --name interleaved_1f1b -p 4 -m 8 -v 2 --costs 1,1,1 --transfer 0.1
  trireme plan schedule --name zb_h1 -p 4 -m 8 --csv zb_h1.csv --format compute_comms --svg zb_h1.svg
  trireme plan schedule --table mine.csv

Flags:
  --name NAME            the schedule
  --table FILE           a table to check and draw, in its place
  --list                 the schedules, their bubble, memory, conditions and sources
  -p, --ranks N          ranks of the pipeline
  -m, --micro-batches N  micro-batches of a step
  -v, --stages-per-rank N
                         stages of each rank [what the schedule wants: 1 or 2]
  --costs F,I,W          times of a forward, an input gradient and a weight gradient of a stage [1,1,1];
                         F,I,W;F,I,W;... gives each stage its own
  --transfer T           time of a message between two ranks [0]
  --rendezvous           check that the table works where a send returns only when its receive is reached
  --tags N               check that N message tags suffice
  --most-inputs N        check that a rank keeps at most N micro-batches until their input gradient
  --most-waiting N       check that at most N weight gradients of a rank wait
  --csv FILE             write the table ('-' is stdout)
  --format FORMAT        of that table: compute_only [default] or compute_comms (with messages and ZeRO's units)
  --svg FILE             write the drawing ('-' is stdout)
  --json FILE            write the figures and the times of all actions ('-' is stdout)
  -h, --help

Where a file is '-', nothing else is printed. Exit code: 0 drawn, 1 the table is wrong or a file cannot be written,
2 usage, or text that is no table.
)";

struct PlanFlags {
  std::string name, table, csv, svg, json, format = "compute_only";
  pipeline::ScheduleSize size{0, 0, 0};
  pipeline::Costs costs;
  pipeline::CheckOptions check;
  bool list = false, help = false;
};

int whole_number(const std::string& flag, const std::string& text) {
  check<UsageError>(!text.empty() && text.size() <= 7 &&
                        text.find_first_not_of("0123456789") == std::string::npos &&
                        std::stoi(text) >= 1,
                    "{} {}: give a whole number from 1 on", flag, text);
  return std::stoi(text);
}

double time_of(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  check<UsageError>(
      !text.empty() && end == text.c_str() + text.size() && std::isfinite(value) && value >= 0,
      "{} {}: give a time that is not negative, as in 1.5", flag, text);
  return value;
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts{""};
  for (const char c : text)
    if (c == by)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

std::vector<pipeline::StageCost> costs_of(const std::string& text) {
  std::vector<pipeline::StageCost> costs;
  for (const std::string& stage : split(text, ';')) {
    const std::vector<std::string> times = split(stage, ',');
    check<UsageError>(times.size() == 3,
                      "--costs {}: give three times F,I,W (a full backward takes I + W)", text);
    costs.push_back(
        {time_of("--costs", times[0]), time_of("--costs", times[1]), time_of("--costs", times[2])});
  }
  return costs;
}

PlanFlags parse_plan_flags(const std::vector<std::string>& words) {
  PlanFlags f;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i], value;
    const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    if (equals != std::string::npos) value = word.substr(equals + 1), word.resize(equals);
    const auto next = [&]() -> const std::string& {
      if (equals == std::string::npos) {
        check<UsageError>(i + 1 < words.size(), "{} needs a value", word);
        value = words[++i];
      }
      check<UsageError>(!value.empty(), "{} needs a value", word);
      return value;
    };
    const auto number = [&] { return whole_number(word, next()); };
    const auto flag = [&] {
      check<UsageError>(equals == std::string::npos, "{} takes no value", word);
      return true;
    };
    if (word == "-h" || word == "--help") {
      f.help = flag();
    } else if (word == "--list") {
      f.list = flag();
    } else if (word == "--rendezvous") {
      f.check.rendezvous = flag();
    } else if (word == "--name") {
      f.name = next();
    } else if (word == "--table") {
      f.table = next();
    } else if (word == "-p" || word == "--ranks") {
      f.size.ranks = number();
    } else if (word == "-m" || word == "--micro-batches") {
      f.size.micro_batches = number();
    } else if (word == "-v" || word == "--stages-per-rank") {
      f.size.stages_per_rank = number();
    } else if (word == "--costs") {
      f.costs.stages = costs_of(next());
    } else if (word == "--transfer") {
      f.costs.transfer = time_of(word, next());
    } else if (word == "--tags") {
      f.check.tags = number();
    } else if (word == "--most-inputs") {
      f.check.most_activations = number();
    } else if (word == "--most-waiting") {
      f.check.most_weight_gradients = number();
    } else if (word == "--csv") {
      f.csv = next();
    } else if (word == "--svg") {
      f.svg = next();
    } else if (word == "--json") {
      f.json = next();
    } else if (word == "--format") {
      f.format = next();
      check<UsageError>(f.format == "compute_only" || f.format == "compute_comms",
                        "--format {}: choose compute_only or compute_comms", f.format);
    } else {
      fail<UsageError>(
          "trireme plan schedule does not know '{}'{}", word,
          did_you_mean(word, {"--name", "--table", "--list", "--ranks", "--micro-batches",
                              "--stages-per-rank", "--costs", "--transfer", "--rendezvous",
                              "--tags", "--most-inputs", "--most-waiting", "--csv", "--format",
                              "--svg", "--json", "--help"}));
    }
  }
  if (f.help || f.list) return f;
  check<UsageError>(f.name.empty() != f.table.empty(),
                    "say --name NAME or --table FILE, one of them ('--list' shows the names)");
  const bool sized = f.size.ranks > 0 && f.size.micro_batches > 0;
  const bool unsized = f.size.ranks + f.size.micro_batches + f.size.stages_per_rank == 0;
  check<UsageError>(f.name.empty() || sized, "say how many ranks and micro-batches: -p 4 -m 8");
  check<UsageError>(f.table.empty() || unsized,
                    "a table says by itself how many ranks, micro-batches and stages it has: leave "
                    "out -p, -m and -v");
  int to_stdout = 0;
  for (const std::string* file : {&f.csv, &f.svg, &f.json}) to_stdout += *file == "-";
  check<UsageError>(to_stdout <= 1, "only one of --csv, --svg and --json may go to stdout ('-')");
  return f;
}

// What is drawn and written: what is computed, and the same with messages and units.
struct Tables {
  Schedule compute, complete;
};

Tables generated(const PlanFlags& f) {
  pipeline::ScheduleSize size = f.size;
  for (const pipeline::ScheduleKind& kind : pipeline::schedule_kinds())
    if (f.name == kind.name && size.stages_per_rank == 0)
      size.stages_per_rank = kind.stages_per_rank;
  size.stages_per_rank = std::max(size.stages_per_rank, 1);
  Schedule compute = pipeline::generate_schedule(f.name, size, f.costs);
  const auto receives =
      f.check.rendezvous ? pipeline::Receives::when_sent : pipeline::Receives::one_ahead;
  return {compute, pipeline::place_messages(pipeline::place_units(compute), receives)};
}

Tables read(const std::string& file) {
  pipeline::TableFile table = pipeline::read_table_file(file);
  return {pipeline::only_compute(std::move(table.given)), std::move(table.complete)};
}

pipeline::TextStyle terminal_style() {
  pipeline::TextStyle style;
  style.columns = 120;
  const char* columns = std::getenv("COLUMNS");
  if (const int given = columns ? std::atoi(columns) : 0; given > 0) style.columns = given;
  if (::isatty(STDOUT_FILENO) != 1) return style;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    style.columns = size.ws_col;
  const char* term = std::getenv("TERM");
  style.colour = !std::getenv("NO_COLOR") && term && std::string(term) != "dumb";
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value && *value) {
      const std::string text = value;
      style.utf8 =
          text.find("UTF-8") != std::string::npos || text.find("utf8") != std::string::npos;
      break;
    }
  return style;
}

void write_text(const std::string& file, const std::string& text) {
  if (file != "-") return write_result_file(file, text);
  const bool ok =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  check<ResourceError>(ok, "cannot write to stdout: {}", errno_text());
}

int schedule_verb(const std::vector<std::string>& words) {
  const PlanFlags f = parse_plan_flags(words);
  if (f.help || f.list) {
    std::fputs(f.help ? kPlanHelp : schedule_list().c_str(), stdout);
    return kExitDone;
  }
  const Tables tables = f.table.empty() ? generated(f) : read(f.table);
  if (const auto found = pipeline::check_schedule(tables.complete, f.check)) {
    std::fputs(found->drawing.c_str(), stdout);
    std::fflush(stdout);
    log_error("{}: {} ({})", tables.complete.name, found->sentence, name_of(found->fault));
    return kExitFailed;
  }
  const pipeline::Timing timing = pipeline::simulate(tables.complete, f.costs);
  const bool quiet = f.csv == "-" || f.svg == "-" || f.json == "-";
  if (!quiet)
    write_text("-", fmt::format("{}: p = {} ranks, m = {} micro-batches, {} stages\n\n",
                                tables.compute.name, tables.compute.ranks(),
                                tables.compute.micro_batches, tables.compute.stages()) +
                        draw_text(tables.compute, timing, terminal_style()) + "\n" +
                        schedule_figures(tables.compute, timing));
  if (!f.csv.empty())
    write_text(f.csv, pipeline::write_table(f.format == "compute_only" ? tables.compute
                                                                       : tables.complete));
  if (!f.svg.empty()) write_text(f.svg, pipeline::draw_svg(tables.compute, timing));
  if (!f.json.empty()) write_json(f.json, schedule_json(tables.compute, timing));
  return kExitDone;
}

}  // namespace

int plan_main(int argc, char** argv) {
  auto words = words_of(argc, argv);
  if (words.empty() || words[0] == "-h" || words[0] == "--help") {
    std::fputs(kPlanHelp, stdout);
    return words.empty() ? kExitUsage : kExitDone;
  }
  check<UsageError>(words[0] == "schedule", "trireme plan plans a 'schedule', not '{}'", words[0]);
  words.erase(words.begin());
  return schedule_verb(words);
}

}  // namespace trireme
