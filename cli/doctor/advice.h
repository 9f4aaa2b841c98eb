// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/doctor/report.h"

// Reading small texts of /proc and /sys, and deciding what is not fine. Pure.
namespace trireme::doctor {

/// "always [madvise] never" → "madvise".
std::string chosen_in(std::string_view text);
/// kB of one key of /proc/meminfo, in bytes.
std::optional<uint64_t> meminfo(std::string_view text, std::string_view key);
/// cgroup's "max" or a number; nullopt: no limit.
std::optional<uint64_t> cgroup_limit(std::string_view text);

struct Limits {
  uint64_t memlock = UINT64_MAX, files = UINT64_MAX, hard_files = UINT64_MAX;
  std::optional<uint64_t> memory, pids;  // of cgroups
  uint64_t memory_used = 0, pids_used = 0;
  bool infiniband = false;
  int ranks = 1;
};
Findings advise(const Limits& limits);

struct KernelFeatures {
  std::string memfd, process_vm_readv, membarrier, pidfd;  // "": there; else why not
  int ptrace_scope = 0;                                    // of Yama; -1: no Yama
};
Findings advise(const KernelFeatures& features);

struct BlasRate {
  std::string coretype;  // OPENBLAS_CORETYPE; "": unset
  std::string corename;
  double gflops = 0;
};
struct BlasRates {
  std::string user;    // OPENBLAS_CORETYPE as it is
  std::string by_run;  // what trireme run sets
  std::vector<BlasRate> rates;
  double peak = 0;     // of multiply-adds; 0: not known
  double foreign = 0;  // others' part of the machine meanwhile
  const BlasRate* now() const;
  const BlasRate* best() const;
  /// A line for the shell; "" where nothing is gained.
  std::string remedy() const;
};
Findings advise(const BlasRates& rates);

/// Others' part of a machine of `cpus` CPUs in `wall` seconds, of which all together were busy for
/// `busy` and ours for `own`.
double foreign_load(double wall, double cpus, double busy, double own);

/// GFLOP/s of LibTorch's matrix product on one thread.
struct HalfRate {
  double float32 = 0, bfloat16 = 0;
};
/// "84 GFLOP/s in LibTorch's matmul, 0.53 × its float32 (159): saves memory, costs time".
std::string text_of(const HalfRate& rate);

struct Interface {
  std::string name;
  std::vector<std::string> addresses;
  bool up = false, loopback = false;
  int mtu = 0, mbit = 0;  // 0: not known
};
struct Route {
  std::string master, resolved, local, interface, error;
  bool several_hosts = false;  // the environment says so
  bool own_name = false;       // master is this host's name
};
Findings advise(const std::vector<Interface>& interfaces, const Route& route);

/// Which links of a job are measured: every pair of hosts by the first rank of each, and on each
/// host the first rank with every other. `host_of[r]`: a number of rank r's host.
struct Link {
  int from = 0, to = 0;
  bool operator==(const Link&) const = default;
};
std::vector<Link> links_of(const std::vector<int>& host_of, size_t most = 512);

/// One question and answer: when it was sent and came back, and when the other end answered, each
/// by its own wall clock, in seconds.
struct Echo {
  double sent = 0, answered = 0, back = 0;
};
/// The other clock minus ours, as the fastest echo tells it, and how far off that may be.
struct ClockDifference {
  double seconds = 0, error = 0;
};
ClockDifference clock_difference(const std::vector<Echo>& echoes);

/// Time of a message of b bytes = alpha + b / beta, from the fastest small and the fastest large.
struct LinkModel {
  double alpha = 0;  // seconds
  double beta = 0;   // bytes a second
};
LinkModel link_model(double small_seconds, double large_seconds, double large_bytes);

struct LinkResult {
  Link link;
  std::string from_host, to_host;
  bool one_host = false;
  std::string error;  // "": measured
  LinkModel model;
  ClockDifference clock;
  int mbit = 0;  // of the interface it leaves by; 0: not known
};
Findings advise(const std::vector<LinkResult>& links);

}  // namespace trireme::doctor
