// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/flags/options.h"

// The one table of the launcher's flags: parser, PET_* fall-backs, "did you mean" and --help read
// it.
namespace trireme::launch {

inline constexpr int kMostNodes = 1024;

/// What is known while words are read; values that depend on each other are settled in finish().
struct ParseState {
  RunOptions options;
  std::string origin;  // "--nnodes" or "PET_NNODES": names the flag in errors
  std::string nproc = "1";
  std::string nproc_origin = "--nproc-per-node";
  bool nproc_given = false;
  bool role_given = false;  // without a count
  std::string rdzv_endpoint;
  std::string rdzv_conf;
  std::string etcd_protocol;  // "": not said
  bool node_rank_given = false;
  bool master_addr_given = false;
  std::string binding;                  // "": auto
  std::string numa;                     // "": not given
  std::vector<std::string> rdzv_given;  // explicit rendezvous flags, which --standalone overrides
  std::string shutdown_timeout;
  std::string signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1";
  const Getenv* env = nullptr;
  LocalDevices devices;
};

struct RunFlag {
  std::string_view name;  // dashed
  char short_name = 0;
  bool takes_value = true;
  std::string_view value;  // "N", "DIR": for --help
  std::string_view help;   // "": kept out of --help
  void (*apply)(ParseState&, const std::string&) = nullptr;
  bool in_mixed = true;  // read by extract_run_options too
  std::string_view alias = {};
};

const std::vector<RunFlag>& run_flags();
/// Checks what depends on several flags; fills what is derived.
void finish(ParseState& state);

}  // namespace trireme::launch
