// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "trireme/net/address.h"

namespace trireme::doctor {
namespace {

constexpr double kWorthSaying = 1.3;     // times faster
constexpr double kBusy = 0.2;            // others' part of the machine: figures are a guess
constexpr double kSureThough = 2;        // times faster, on a busy machine
constexpr double kPoorBlas = 0.6;        // of the peak
constexpr double kPoorLink = 0.5;        // of the interface's rate
constexpr double kClockWorthSaying = 1;  // seconds
constexpr uint64_t kFiles = 4096, kMemlock = uint64_t{64} << 20;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}

std::optional<uint64_t> number(std::string_view text) {
  text = trimmed(text);
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

}  // namespace

std::string chosen_in(std::string_view text) {
  const size_t begin = text.find('['), end = text.find(']');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin)
    return std::string(trimmed(text));
  return std::string(text.substr(begin + 1, end - begin - 1));
}

std::optional<uint64_t> meminfo(std::string_view text, std::string_view key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
    auto value = number(line.substr(key.size() + 1));
    if (!value) return std::nullopt;
    return line.ends_with("kB") ? *value << 10 : *value;
  }
  return std::nullopt;
}

std::optional<uint64_t> cgroup_limit(std::string_view text) {
  auto value = number(text);
  // v1 writes "no limit" as the largest number of pages.
  return value && *value < (uint64_t{1} << 62) ? value : std::nullopt;
}

Findings advise(const Limits& l) {
  Findings found;
  auto find = [&](std::string what, std::string todo) {
    found.push_back({"limits", std::move(what), std::move(todo)});
  };
  if (l.files < kFiles)
    find(fmt::format("a process may open {} files; ranks hold a few for each peer, checkpoint and "
                     "data file",
                     l.files),
         l.hard_files >= kFiles
             ? fmt::format("ulimit -n {}", std::min<uint64_t>(l.hard_files, 65536))
             : fmt::format("ask root to raise 'nofile' in /etc/security/limits.conf (the hard "
                           "limit is {})",
                           l.hard_files));
  if (l.infiniband && l.memlock < kMemlock)
    find(fmt::format("{} of memory may be locked; InfiniBand (MPI, NCCL) pins its buffers",
                     text_of_bytes(l.memlock)),
         "ulimit -l unlimited (in /etc/security/limits.conf: * - memlock unlimited)");
  if (l.memory) {
    const uint64_t left = *l.memory - std::min(*l.memory, l.memory_used);
    if (left < (uint64_t{1} << 30))
      find(fmt::format("a cgroup allows {} of memory and {} of it are taken: shared memory of the "
                       "ranks counts too, and beyond it the kernel kills",
                       text_of_bytes(*l.memory), text_of_bytes(l.memory_used)),
           "raise memory.max (Kubernetes: resources.limits.memory; Slurm: --mem)");
  }
  if (l.pids && *l.pids - std::min(*l.pids, l.pids_used) < static_cast<uint64_t>(64 * l.ranks))
    find(fmt::format("a cgroup allows {} processes and threads, {} are there; a rank has up to 64",
                     *l.pids, l.pids_used),
         "raise pids.max (docker run --pids-limit, systemd TasksMax)");
  return found;
}

Findings advise(const KernelFeatures& k) {
  Findings found;
  auto find = [&](std::string what, std::string todo) {
    found.push_back({"kernel", std::move(what), std::move(todo)});
  };
  const std::string seccomp =
      "allow it in the container's seccomp profile (docker run --security-opt seccomp=…), or use "
      "--backend gloo";
  if (!k.memfd.empty())
    find("memfd_create does not work (" + k.memfd + "): ranks of one host cannot share memory",
         seccomp);
  if (!k.pidfd.empty())
    find("pidfd_open does not work (" + k.pidfd + "): a killed rank cannot be noticed at once",
         "use Linux 5.3 or newer; in a container " + seccomp);
  if (!k.process_vm_readv.empty())
    find(fmt::format("process_vm_readv does not work ({}): messages in ordinary memory are copied "
                     "twice. Nothing else is lost",
                     k.process_vm_readv),
         k.ptrace_scope > 0
             ? "sysctl kernel.yama.ptrace_scope=0, or take buffers from Group::empty()"
             : "docker run --cap-add SYS_PTRACE, or take buffers from Group::empty()");
  if (!k.membarrier.empty())
    find("membarrier does not work (" + k.membarrier + "): each call costs some nanoseconds more",
         "use Linux 4.16 or newer, and allow it in the container's seccomp profile");
  return found;
}

const BlasRate* BlasRates::now() const {
  for (const BlasRate& rate : rates)
    if (rate.coretype == user) return &rate;
  return nullptr;
}

const BlasRate* BlasRates::best() const {
  const BlasRate* best = nullptr;
  for (const BlasRate& rate : rates)
    if (rate.gflops > 0 && (!best || rate.gflops > best->gflops)) best = &rate;
  return best;
}

std::string BlasRates::remedy() const {
  const BlasRate *is = now(), *could = best();
  if (!is || !could || could->gflops < (foreign > kBusy ? kSureThough : kWorthSaying) * is->gflops)
    return "";
  return could->coretype.empty() ? "unset OPENBLAS_CORETYPE"
                                 : "export OPENBLAS_CORETYPE=" + could->coretype;
}

Findings advise(const BlasRates& r) {
  Findings found;
  const BlasRate *is = r.now(), *could = r.best();
  if (!is || !could) return found;
  if (const std::string remedy = r.remedy(); !remedy.empty()) {
    const bool mended = r.by_run == could->coretype && r.user.empty();
    found.push_back(
        {"blas",
         is->gflops > 0
             ? fmt::format("OpenBLAS took its {} kernels: {:.0f} GFLOP/s where {} give {:.0f}",
                           is->corename, is->gflops, could->corename, could->gflops)
             : fmt::format("OPENBLAS_CORETYPE={} does not run on this CPU", r.user),
         remedy +
             (mended ? "    # 'trireme run' and init_process_group do it by themselves" : "")});
  }
  if (r.foreign > kBusy)
    found.push_back(
        {"blas",
         fmt::format("others used {:.0f} % of this machine meanwhile: the rates are too low",
                     100 * r.foreign),
         "run 'trireme doctor' again on an idle machine"});
  else if (r.peak > 0 && could->gflops < kPoorBlas * r.peak)
    found.push_back(
        {"blas",
         fmt::format("the best sgemm does {:.0f} GFLOP/s, {:.0f} % of the {:.0f} that a core "
                     "multiplies and adds",
                     could->gflops, 100 * could->gflops / r.peak, r.peak),
         "install a newer OpenBLAS (0.3.26 or later knows newer cores), or run on an idle "
         "machine"});
  return found;
}

double foreign_load(double wall, double cpus, double busy, double own) {
  return wall > 0 && cpus > 0 ? std::max(0.0, busy - own) / (wall * cpus) : 0;
}

Findings advise(const std::vector<Interface>& interfaces, const Route& route) {
  Findings found;
  auto find = [&](std::string what, std::string todo) {
    found.push_back({"network", std::move(what), std::move(todo)});
  };
  if (!route.error.empty())
    return find(fmt::format("no way to the master, {}: {}", route.master, route.error),
                "name rank 0's host by an address that this host reaches (MASTER_ADDR, --master)"),
           found;
  if (route.master.empty()) return found;
  const bool loopback = net::is_loopback(route.resolved);
  if (route.several_hosts && loopback)
    find(fmt::format("MASTER_ADDR={} is {}, this host itself, but the job has several hosts",
                     route.master, route.resolved),
         "set MASTER_ADDR to an address of rank 0's host that the others reach");
  if (!route.several_hosts && route.own_name && loopback && !net::is_loopback(route.master))
    find(fmt::format("this host's name, {}, is {} in /etc/hosts: as MASTER_ADDR of a job on "
                     "several hosts it would lead the others to themselves",
                     route.master, route.resolved),
         "use the host's address there, or mend /etc/hosts");
  const auto usable = std::count_if(interfaces.begin(), interfaces.end(), [](const Interface& i) {
    return i.up && !i.loopback && !i.addresses.empty();
  });
  if (route.several_hosts && usable > 1 && !route.interface.empty())
    find(fmt::format("{} interfaces are up; the way to the master is {} ({})", usable,
                     route.interface, route.local),
         fmt::format("export GLOO_SOCKET_IFNAME={0} NCCL_SOCKET_IFNAME={0}, so that no backend "
                     "guesses another",
                     route.interface));
  return found;
}

std::vector<Link> links_of(const std::vector<int>& host_of, size_t most) {
  std::vector<Link> links;
  std::vector<int> firsts;
  std::map<int, int> first_of;
  for (size_t r = 0; r < host_of.size(); ++r)
    if (first_of.emplace(host_of[r], static_cast<int>(r)).second)
      firsts.push_back(static_cast<int>(r));
  for (size_t a = 0; a < firsts.size(); ++a)
    for (size_t b = a + 1; b < firsts.size(); ++b) links.push_back({firsts[a], firsts[b]});
  for (size_t r = 0; r < host_of.size(); ++r) {
    const int first = first_of[host_of[r]];
    if (first != static_cast<int>(r)) links.push_back({first, static_cast<int>(r)});
  }
  if (links.size() > most) links.resize(most);
  return links;
}

ClockDifference clock_difference(const std::vector<Echo>& echoes) {
  ClockDifference best;
  double shortest = 1e300;
  for (const Echo& e : echoes) {
    const double trip = e.back - e.sent;
    if (trip >= shortest) continue;
    shortest = trip;
    best = {e.answered - (e.sent + e.back) / 2, trip / 2};
  }
  return best;
}

LinkModel link_model(double small_seconds, double large_seconds, double large_bytes) {
  const double moving = std::max(large_seconds - small_seconds, 1e-9);
  return {small_seconds, large_bytes / moving};
}

Findings advise(const std::vector<LinkResult>& links) {
  Findings found;
  auto find = [&](std::string what, std::string todo) {
    found.push_back({"peers", std::move(what), std::move(todo)});
  };
  std::map<std::pair<std::string, std::string>, bool> clocks_said;
  for (const LinkResult& l : links) {
    const std::string who = fmt::format("rank {} ({}) and rank {} ({})", l.link.from, l.from_host,
                                        l.link.to, l.to_host);
    if (!l.error.empty()) {
      find(fmt::format("{} do not reach each other: {}", who, l.error),
           l.one_host ? "look at the text; both are on one host"
                      : "open TCP between the hosts (a firewall?), and give MASTER_ADDR as an "
                        "address of the network that joins them");
      continue;
    }
    if (l.one_host) continue;
    if (std::abs(l.clock.seconds) > kClockWorthSaying + l.clock.error &&
        !clocks_said[{l.from_host, l.to_host}]) {
      clocks_said[{l.from_host, l.to_host}] = true;
      find(fmt::format("the clock of {} is {:.1f} s {} that of {}: logs and traces do not line up",
                       l.to_host, std::abs(l.clock.seconds),
                       l.clock.seconds > 0 ? "ahead of" : "behind", l.from_host),
           "run chrony or systemd-timesyncd on both");
    }
    const double expected = l.mbit * 1e6 / 8;
    if (l.mbit > 0 && l.model.beta < kPoorLink * expected)
      find(fmt::format("between {} move {:.2f} GB/s, {:.0f} % of the interface's {:.2f}", who,
                       l.model.beta / 1e9, 100 * l.model.beta / expected, expected / 1e9),
           "look for other traffic, a smaller MTU on the way, or a slower switch port");
  }
  return found;
}

}  // namespace trireme::doctor
