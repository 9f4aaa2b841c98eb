// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/doctor/peers.h"
#include "cli/doctor/sections.h"
#include "cli/verbs.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/front/start_ranks.h"
#include "trireme/launch/flags/options.h"
#include "trireme/launch/flags/text.h"
#include "trireme/rendezvous/rank_env.h"

namespace trireme {
namespace {

const char kDoctorHelp[] =
    R"(What this machine offers, what 'trireme run' would make of it, and what to mend.

Usage: trireme doctor [--json FILE] [--quick] [--master HOST] [--nproc-per-node N]
       trireme doctor --peers HOST,HOST,… [--rank R] [--port P]     # the same line on every host

  --json FILE         the report as JSON; -: stdout, instead of the text
  --quick             measure neither BLAS nor memory (3 s less)
  --master HOST       show the way to this host [MASTER_ADDR]
  --nproc-per-node N  2 or more: start as many ranks here and measure the links between them
  --peers HOST,…      measure the links between these hosts; rank 0's comes first. Takes the job secret
                      (~/.config/trireme/secret on each) or TRIREME_INSECURE=1
  --rank R            which of --peers this is, where its names and addresses do not tell
  --port P            where the first of --peers listens [29500]
  --timeout SECONDS   how long ranks wait for each other [60]

Started by mpirun, srun or torchrun it measures the links between their ranks. alpha is the time of a small
message one way, beta the rate of a large one.

Examples:
  trireme doctor
  trireme doctor --nproc-per-node 2
  mpirun -np 4 --hostfile hosts trireme doctor --json report.json
  trireme doctor --peers node1,node2
)";

struct DoctorFlags {
  std::string json, peers, part;
  doctor::Options options;
  int rank = -1, port = 29500;
  double timeout = 60;
  bool help = false;
};

DoctorFlags parse_doctor_flags(const std::vector<std::string>& words) {
  DoctorFlags f;
  const std::vector<std::string> known = {"--json", "--quick", "--master",  "--peers",    "--rank",
                                          "--port", "--help",  "--timeout", "--peer-part"};
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i], value;
    const auto equals = word.find('=');
    const bool has_value = equals != std::string::npos;
    if (has_value) value = word.substr(equals + 1), word.resize(equals);
    if (word == "-h") word = "--help";
    const std::string near = launch::nearest(word, known);
    check<UsageError>(std::find(known.begin(), known.end(), word) != known.end(),
                      "doctor does not know '{}'{}; 'trireme doctor --help' lists its flags", word,
                      near.empty() ? "" : ": did you mean " + near + "?");
    const bool is_switch = word == "--help" || word == "--quick";
    check<UsageError>(!is_switch || !has_value, "doctor: {} takes no value", word);
    if (!is_switch && !has_value) {
      check<UsageError>(i + 1 < words.size(), "doctor: {} needs a value", word);
      value = words[++i];
    }
    check<UsageError>(is_switch || !value.empty(), "doctor: {} needs a value", word);
    const auto whole = [&](int64_t low, int64_t high) {
      const auto n = launch::parse_int(value);
      check<UsageError>(n && *n >= low && *n <= high,
                        "doctor: {} {} is not a whole number from {} to {}", word, value, low,
                        high);
      return static_cast<int>(*n);
    };
    if (word == "--help") f.help = true;
    if (word == "--quick") f.options.quick = true;
    if (word == "--json") f.json = value;
    if (word == "--master") f.options.master = value;
    if (word == "--peers") f.peers = value;
    if (word == "--peer-part") f.part = value;
    if (word == "--rank") f.rank = whole(0, 1 << 20);
    if (word == "--port") f.port = whole(1, 65535);
    if (word == "--timeout") f.timeout = whole(1, 86400);
  }
  check<UsageError>(f.rank < 0 || !f.peers.empty(), "doctor: --rank goes with --peers");
  return f;
}

void give(const DoctorFlags& flags, const doctor::Report& report) {
  if (!flags.json.empty()) return write_json(flags.json, report.to_json());
  const std::string text = report.text();
  const bool ok =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  check<ResourceError>(ok, "cannot write to stdout: {}", errno_text());
}

doctor::PeerOptions peer_options(const DoctorFlags& flags) {
  doctor::PeerOptions peers;
  peers.timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(flags.timeout));
  return peers;
}

/// One of the ranks that doctor started itself: rank 0 leaves the section in a file.
int run_part(const DoctorFlags& flags) {
  auto peers = peer_options(flags);
  peers.env = read_rank_env();
  const doctor::Report report = doctor::examine_peers(peers);
  if (peers.env.rank == 0)
    write_file_atomic(flags.part, doctor::pack(report.sections.back()).dump());
  return kExitDone;
}

/// A rank of somebody's job, or one of --peers.
int run_as_rank(const DoctorFlags& flags, doctor::PeerOptions peers) {
  peers.examine = [&flags] { return doctor::examine(flags.options); };
  const doctor::Report report = doctor::examine_peers(peers);
  if (peers.env.rank == 0)
    give(flags, report);
  else
    log_info("measured; rank 0 has the report");
  return kExitDone;
}

}  // namespace

int doctor_main(int argc, char** argv) {
  std::vector<std::string> rest;
  auto launch_options = launch::extract_run_options(words_of(argc, argv), &rest);
  launch::refuse_several_nodes(launch_options);
  DoctorFlags flags = parse_doctor_flags(rest);
  if (flags.help) {
    std::fputs(kDoctorHelp, stdout);
    return kExitDone;
  }
  if (!flags.part.empty()) return run_part(flags);

  const RankEnv self = read_rank_env();
  if (!flags.peers.empty()) {
    std::vector<std::string> hosts;
    for (auto host : launch::split(flags.peers, ',')) hosts.emplace_back(launch::trim(host));
    auto peers = peer_options(flags);
    peers.env = doctor::env_of_list(hosts, flags.rank, doctor::own_names());
    peers.init_method = fmt::format("tcp://{}:{}", hosts[0], flags.port);
    if (flags.options.master.empty()) flags.options.master = hosts[0];
    return run_as_rank(flags, peers);
  }
  if (self.world_size > 1) {
    auto peers = peer_options(flags);
    peers.env = self;
    return run_as_rank(flags, peers);
  }

  check_json_file(flags.json);
  const int ranks = launch_options.nproc_per_node;
  if (ranks > 1) flags.options.ranks = ranks;
  if (launch_options.dry_run || ranks > 1) {
    PrivateFolder folder("trireme-doctor");
    const std::string file = folder / "peers.json";
    const std::vector<std::string> command = {
        std::filesystem::read_symlink("/proc/self/exe").string(),
        "doctor",
        "--peer-part",
        file,
        "--timeout",
        fmt::format("{:.0f}", flags.timeout)};
    if (launch_options.dry_run) return start_ranks(launch_options, command);
    doctor::Report report = doctor::examine(flags.options);
    const int code = start_ranks(launch_options, command, launch::FailureReport::one_line);
    if (code != kExitDone) return code;
    report.sections.push_back(doctor::unpack(nlohmann::ordered_json::parse(read_file(file))));
    give(flags, report);
    return kExitDone;
  }
  give(flags, doctor::examine(flags.options));
  return kExitDone;
}

}  // namespace trireme
