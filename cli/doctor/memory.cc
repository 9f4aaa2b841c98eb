// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include "cli/doctor/advice.h"
#include "cli/doctor/sections.h"
#include "trireme/base/clock.h"
#include "trireme/launch/process/proc_text.h"

namespace trireme::doctor {
namespace {

constexpr size_t kMostBytes = size_t{128} << 20;

void bind_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
}

}  // namespace

double copy_bandwidth(const std::vector<int>& cpus, size_t bytes_each) {
  const size_t bytes = std::max<size_t>(bytes_each & ~size_t{4095}, 4096);
  std::atomic<int> ready{0};
  std::atomic<bool> go{false}, failed{false};
  std::vector<double> seconds(cpus.size());
  auto body = [&](size_t index) {
    bind_to(cpus[index]);
    void* memory =
        ::mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) failed = true;
    auto* from = static_cast<char*>(memory);
    auto* to = from + bytes;
    if (!failed) std::memset(memory, 1, 2 * bytes);
    ++ready;
    while (!go) std::this_thread::yield();
    double best = 1e9;
    // All threads copy at the same time: each goes on for as long.
    const auto budget = Deadline::after(std::chrono::milliseconds(150));
    while (!failed && !budget.expired()) {
      const auto begin = Clock::now();
      std::memcpy(to, from, bytes);
      best = std::min(best, seconds_since(begin));
    }
    seconds[index] = best;
    if (memory != MAP_FAILED) ::munmap(memory, 2 * bytes);
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < cpus.size(); ++i) threads.emplace_back(body, i);
  while (ready < static_cast<int>(cpus.size())) std::this_thread::yield();
  go = true;
  for (auto& t : threads) t.join();
  if (failed) return 0;
  double rate = 0;
  for (double s : seconds) rate += 2.0 * static_cast<double>(bytes) / s / 1e9;
  return rate;
}

Section memory(const launch::Machine& machine, const Options& options) {
  Section s("memory");
  const std::string info = launch::read_if_there("/proc/meminfo").value_or("");
  const uint64_t total = meminfo(info, "MemTotal").value_or(0),
                 available = meminfo(info, "MemAvailable").value_or(0),
                 swap = meminfo(info, "SwapTotal").value_or(0),
                 huge = meminfo(info, "HugePages_Total").value_or(0);
  s.json = {{"total", total}, {"available", available}, {"swap", swap}, {"huge_pages", huge}};
  s.row("memory", fmt::format("{}, {} available, swap {}", text_of_bytes(total),
                              text_of_bytes(available), text_of_bytes(swap)));
  const std::string thp = "/sys/kernel/mm/transparent_hugepage/";
  const auto enabled = launch::read_if_there(thp + "enabled"),
             shmem = launch::read_if_there(thp + "shmem_enabled");
  s.json["transparent_huge_pages"] =
      enabled ? ordered_json(chosen_in(*enabled)) : ordered_json(nullptr);
  s.json["shared_huge_pages"] = shmem ? ordered_json(chosen_in(*shmem)) : ordered_json(nullptr);
  s.row("huge pages", fmt::format("transparent {}, of shared memory {}; reserved {}",
                                  enabled ? chosen_in(*enabled) : "not there",
                                  shmem ? chosen_in(*shmem) : "not there", huge));
  if (enabled && chosen_in(*enabled) == "never")
    s.find("transparent huge pages are off: large tensors cost more page faults and TLB misses",
           "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)");
  if (options.quick) return s;

  std::set<std::pair<int, int>> cores;
  std::vector<int> one_a_core;
  for (const auto& cpu : machine.cpus)
    if (cores.insert({cpu.package, cpu.core}).second) one_a_core.push_back(cpu.id);
  // Far beyond the caches, far below what is free.
  const long l3 = std::max(0L, ::sysconf(_SC_LEVEL3_CACHE_SIZE));
  const size_t share = std::min<size_t>(
      std::clamp<size_t>(2 * static_cast<size_t>(l3), size_t{32} << 20, kMostBytes),
      available / 16 / std::max<size_t>(one_a_core.size(), 1));
  const double one = copy_bandwidth({one_a_core.front()}, share),
               all = copy_bandwidth(one_a_core, share);
  s.json["copy_gb_per_s"] = {{"one_core", one}, {"all_cores", all}};
  s.row("copy", fmt::format("{:.1f} GB/s one core, {:.1f} GB/s all {} (reads and writes counted)",
                            one, all, one_a_core.size()));
  return s;
}

}  // namespace trireme::doctor
