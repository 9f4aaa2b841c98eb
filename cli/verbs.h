// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/config_verb.h"
#include "trireme/front/words.h"

// One function a verb: argv[0] is the verb, the result is the exit code (design §4). UsageError and
// other errors may leave by throwing; main prints them.
namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace trireme {

int train_main(int argc, char** argv);
int generate_main(int argc, char** argv);
int bench_main(int argc, char** argv);
int run_main(int argc, char** argv);
int job_main(int argc, char** argv);
int doctor_main(int argc, char** argv);
int summary_main(int argc, char** argv);
int plan_main(int argc, char** argv);
int checkpoint_main(int argc, char** argv);
int trace_main(int argc, char** argv);
int version_main(int argc, char** argv);

/// What a CLI11 parser says, with that for a flag that it does not know (or the verb that
/// extract_run_options reads flags for: `more`).
std::string parse_problem(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& more = {});

/// What --json FILE means everywhere: "-" is stdout.
void write_json(const std::string& file, const nlohmann::ordered_json& value);
/// Before work whose result would be lost: throws if write_json() could not write there. "": no
/// file is asked for.
void check_json_file(const std::string& file);

/// For verbs whose only flags are --json FILE and --help. Prints `help` and sets `done` for the
/// latter.
struct JsonAndHelp {
  std::string json;  // "": not asked for
  bool done = false;
};
JsonAndHelp parse_json_and_help(int argc, char** argv, const char* help);

}  // namespace trireme
