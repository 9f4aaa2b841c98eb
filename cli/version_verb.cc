// SPDX-License-Identifier: Apache-2.0
#include <gnu/libc-version.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/verbs.h"
#include "cli/worker_program.h"
#include "trireme/base/version.h"

namespace trireme {
namespace {

const char kVersionHelp[] = R"(Versions of Trireme and of what it was built with.

Usage: trireme version [--json FILE]

Examples:
  trireme version
  trireme version --json -
)";

}  // namespace

int version_main(int argc, char** argv) {
  auto flags = parse_json_and_help(argc, argv, kVersionHelp);
  if (flags.done) return 0;
  std::string worker = find_worker_program();
  nlohmann::ordered_json json{{"trireme", version()},
                              {"compiler", TRIREME_COMPILER},
                              {"libc", ::gnu_get_libc_version()},
                              {"worker", worker}};
  if (!flags.json.empty()) {
    write_json(flags.json, json);
    return 0;
  }
  std::printf("trireme %s\n", version());
  std::printf("compiler  %s\n", TRIREME_COMPILER);
  std::printf("glibc     %s\n", ::gnu_get_libc_version());
  std::printf("worker    %s\n",
              worker.empty() ? "not there: train, generate and bench need it" : worker.c_str());
  return 0;
}

}  // namespace trireme
