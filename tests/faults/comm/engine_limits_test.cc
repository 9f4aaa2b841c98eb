// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <torch/types.h>

#include <cstdlib>

#include "tests/support/conformance.h"
#include "tests/support/memory_limit.h"
#include "tests/support/ranks.h"
#include "tests/support/refusals.h"
#include "trireme/comm/local/host/memory_room.h"
#include "trireme/comm/start/run.h"

// A system that gives less than the engine would like: calls that a seccomp filter denies, few
// descriptors, little memory. Ranks work with what there is, or say in one sentence what is needed.
namespace trireme::testing::engine_limits_test {
namespace {

using Before = std::function<void(int rank)>;
using Body = std::function<void(Group)>;

/// n processes: each takes its limits upon itself, joins the world as a launcher's would, and runs
/// the body. What each threw, "signal 9", or "hung".
class LimitedRanks {
 public:
  LimitedRanks(int n, const Before& before, const Body& body,
               Duration timeout = std::chrono::seconds(20)) {
    const std::string job = "limits-" + std::to_string(::getpid()) + folder_.path();
    for (int r = 0; r < n; ++r) {
      int ends[2];
      if (::pipe(ends) != 0) fail<ResourceError>("pipe: {}", errno_text());
      reports_.emplace_back(ends[0]);
      UniqueFd report(ends[1]);
      const pid_t pid = ::fork();
      check<ResourceError>(pid >= 0, "fork: {}", errno_text());
      if (pid > 0) {
        pids_.push_back(pid);
        continue;
      }
      reports_.clear();
      for (auto& [name, value] : {std::pair<const char*, int>{"RANK", r},
                                  {"WORLD_SIZE", n},
                                  {"LOCAL_RANK", r},
                                  {"LOCAL_WORLD_SIZE", n}})
        ::setenv(name, std::to_string(value).c_str(), 1);
      ::setenv("TORCHELASTIC_RUN_ID", job.c_str(), 1);
      const auto begin = Clock::now();
      std::string text = outcome_of([&] {
        before(r);
        Group g = init_process_group({.backend = "local", .timeout = timeout});
        try {
          body(g);
        } catch (const std::exception& e) {
          g.abort(e.what());
          throw;
        }
      });
      if (seconds_since(begin) > 8) text += " (late)";
      [[maybe_unused]] auto n_written = ::write(report.get(), text.data(), text.size());
      ::_exit(text.empty() ? 0 : 1);
    }
  }
  ~LimitedRanks() { wait(Duration::zero()); }

  Outcomes wait(Duration limit = std::chrono::seconds(60)) {
    const Deadline deadline = Deadline::after(limit);
    Outcomes outcomes;
    for (size_t r = 0; r < pids_.size(); ++r) {
      int status = 0;
      while (::waitpid(pids_[r], &status, WNOHANG) == 0) {
        if (deadline.expired()) send_signal(pids_[r], SIGKILL);
        ::usleep(500);
      }
      std::string text(4096, '\0');
      const ssize_t n = ::read(reports_[r].get(), text.data(), text.size());
      text.resize(n > 0 ? static_cast<size_t>(n) : 0);
      if (WIFSIGNALED(status))
        text = deadline.expired() ? "hung" : "signal " + std::to_string(WTERMSIG(status));
      outcomes.push_back(text);
    }
    pids_.clear();
    return outcomes;
  }

 private:
  static void send_signal(pid_t pid, int signal) {
    if (pid > 1) ::kill(pid, signal);
  }
  PrivateFolder folder_;
  std::vector<pid_t> pids_;
  std::vector<UniqueFd> reports_;
};

Outcomes limited(int n, const Before& before, const Body& body) {
  return LimitedRanks(n, before, body).wait();
}

void expect_clean(const Outcomes& outcomes, const std::string& what) {
  for (size_t r = 0; r < outcomes.size(); ++r) EXPECT_EQ(outcomes[r], "") << what << ", rank " << r;
}

/// What every path of the engine does: small, staged, in place, messages large enough to be read
/// out of the other process.
void everything(Group g) {
  conform(g, {at::kFloat}, {{3, 5}, {50001}});
  const int n = g.size(), me = g.rank();
  for (bool arena : {false, true}) {
    constexpr int64_t kCount = 700001;
    at::Tensor t = arena ? g.empty({kCount}, at::kFloat) : at::empty({kCount});
    at::Tensor got = arena ? g.empty({kCount}, at::kFloat) : at::empty({kCount});
    t.fill_(me + 1);
    Work in = g.irecv(got, (me + n - 1) % n), out = g.isend(t, (me + 1) % n);
    in.wait();
    out.wait();
    check<Error>(got.eq((me + n - 1) % n + 1).all().item<bool>(), "wrong message, arena {}", arena);
    g.all_reduce(t).wait();
    check<Error>(t.eq(n * (n + 1) / 2).all().item<bool>(), "wrong sum, arena {}", arena);
    g.broadcast(got, n - 1).wait();
    check<Error>(got.eq(n - 1 + (n == 1)).all().item<bool>(), "wrong broadcast, arena {}", arena);
  }
}

// ---- system calls that are denied

/// From here on these calls of this process end so: an errno, or 0: the process dies.
void deny(const std::vector<int>& calls, int error) {
  std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  const uint32_t verdict =
      error ? SECCOMP_RET_ERRNO | static_cast<uint32_t>(error) : SECCOMP_RET_KILL_PROCESS;
  for (int call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, verdict));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    fail<ResourceError>("no seccomp: {}", errno_text());
}

/// More ranks than CPUs: then large messages are read with process_vm_readv.
void two_cpus() {
  cpu_set_t all, two;
  CPU_ZERO(&two);
  ::sched_getaffinity(0, sizeof all, &all);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &two);
  ::sched_setaffinity(0, sizeof two, &two);
}

bool no_seccomp() { return ::prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0; }

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
struct Denied {
  const char* name;
  std::vector<int> calls;
};
const std::vector<Denied>& not_required() {
  static const std::vector<Denied> list{
      {"process_vm_readv", {SYS_process_vm_readv, SYS_process_vm_writev}},
      {"membarrier", {SYS_membarrier}},
      {"pidfd_open", {SYS_pidfd_open}},
      {"pidfd_getfd", {SYS_pidfd_getfd}},
      {"all of them",
       {SYS_process_vm_readv, SYS_process_vm_writev, SYS_membarrier, SYS_pidfd_open,
        SYS_pidfd_getfd}}};
  return list;
}

}  // namespace

TEST(faults_comm_engine_limits, denied_calls_that_are_not_required_change_nothing) {
  if (no_seccomp()) GTEST_SKIP() << "this kernel has no seccomp";
  for (const Denied& d : not_required())
    for (int error : {EPERM, ENOSYS})
      expect_clean(limited(
                       3,
                       [&](int) {
                         two_cpus();
                         deny(d.calls, error);
                       },
                       everything),
                   d.name);
}

TEST(faults_comm_engine_limits, a_rank_of_several_that_is_denied_calls_fits_in) {
  if (no_seccomp()) GTEST_SKIP() << "this kernel has no seccomp";
  expect_clean(limited(
                   3,
                   [](int rank) {
                     two_cpus();
                     if (rank == 1) deny(not_required().back().calls, EPERM);
                   },
                   everything),
               "rank 1 alone");
}

TEST(faults_comm_engine_limits, without_pidfds_a_killed_rank_is_still_peer_lost) {
  if (no_seccomp()) GTEST_SKIP() << "this kernel has no seccomp";
  const auto outcomes = limited(
      3, [](int) { deny({SYS_pidfd_open}, EPERM); },
      [](Group g) {
        g.barrier();
        if (g.rank() == 2) ::raise(SIGKILL);
        at::Tensor t = at::ones({100000});
        g.all_reduce(t).wait();
      });
  EXPECT_EQ(outcomes[2], "signal 9");
  for (int r : {0, 1})
    EXPECT_TRUE(has(outcomes[size_t(r)], "PeerLost: rank 2 (pid ") &&
                !has(outcomes[size_t(r)], "late"))
        << outcomes[size_t(r)];
}

TEST(faults_comm_engine_limits, without_memfd_create_it_says_what_is_needed) {
  if (no_seccomp()) GTEST_SKIP() << "this kernel has no seccomp";
  for (int error : {EPERM, ENOSYS}) {
    const auto outcomes = limited(
        3, [&](int) { deny({SYS_memfd_create}, error); }, everything);
    for (const std::string& o : outcomes) {
      EXPECT_TRUE(has(o, "cannot create shared memory: memfd_create: " + errno_text(error) +
                             ". A seccomp profile or sandbox denies it: allow memfd_create, run "
                             "the ranks as threads of one process, or use the gloo backend"))
          << o;
      EXPECT_FALSE(has(o, "late")) << o;
    }
  }
}

TEST(faults_comm_engine_limits, a_rank_that_cannot_share_memory_is_named_by_the_others_at_once) {
  if (no_seccomp()) GTEST_SKIP() << "this kernel has no seccomp";
  for (int bad : {0, 1, 2}) {
    const auto outcomes = limited(
        3,
        [&](int rank) {
          if (rank == bad) deny({SYS_memfd_create}, EPERM);
        },
        everything);
    for (int r = 0; r < 3; ++r) {
      const std::string& o = outcomes[size_t(r)];
      EXPECT_TRUE(has(o, r == bad ? "ResourceError: cannot create shared memory: "
                                  : fmt::format("PeerLost: rank {} could not share memory with the "
                                                "others: cannot create shared memory: "
                                                "memfd_create: Operation not permitted",
                                                bad)) &&
                  !has(o, "late"))
          << "rank " << bad << " is denied; rank " << r << ": " << o;
    }
  }
}

TEST(faults_comm_engine_limits, a_rank_that_dies_while_they_meet_is_named_by_the_others_at_once) {
  if (no_seccomp()) GTEST_SKIP() << "this kernel has no seccomp";
  for (int bad : {1, 2}) {  // rank 0 takes the store with it
    const auto outcomes = limited(
        3,
        [&](int rank) {
          if (rank == bad) deny({SYS_memfd_create}, 0);
        },
        everything);
    for (int r = 0; r < 3; ++r) {
      const std::string& o = outcomes[size_t(r)];
      EXPECT_TRUE(has(o, r == bad ? "signal 31" : fmt::format("PeerLost: rank {} (pid ", bad)) &&
                  !has(o, "late"))
          << "rank " << bad << " dies; rank " << r << ": " << o;
    }
  }
}

// ---- descriptors

namespace {

// As a user without privileges: then descriptors that are under way count too.
void few_files(int) {
  if (::geteuid() == 0)
    if (::setresuid(65534, 65534, 65534) != 0) fail<ResourceError>("setresuid: {}", errno_text());
  rlimit limit{64, 64};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) fail<ResourceError>("setrlimit: {}", errno_text());
}

}  // namespace

TEST(faults_comm_engine_limits, eight_ranks_do_with_64_files) {
  expect_clean(limited(8, few_files,
                       [](Group g) {
                         everything(g);
                         Group half = g.split(g.rank() % 2);
                         everything(half);
                         // More windows than files.
                         std::vector<at::Tensor> blocks;
                         for (int i = 0; i < 80; ++i) {
                           blocks.push_back(g.empty({1 << 18}, at::kFloat).fill_(g.rank()));
                           if (i % 10 == 0) g.all_reduce(blocks.back()).wait();
                         }
                         for (int i : {79, 41}) {
                           g.all_reduce(blocks[size_t(i)]).wait();
                           check<Error>(blocks[size_t(i)].eq(28).all().item<bool>(), "wrong sum");
                         }
                       }),
               "64 files");
}

TEST(faults_comm_engine_limits, more_groups_than_files_are_refused_and_the_others_go_on) {
  expect_clean(limited(8, few_files,
                       [](Group g) {
                         std::vector<Group> groups;
                         for (int i = 0;; ++i) {
                           check<Error>(i < 10, "ten groups of eight with 64 files");
                           Group made;
                           const std::string o = outcome_of([&] {
                             made = g.new_group({0, 1, 2, 3, 4, 5, 6, 7});
                           });
                           at::Tensor all = at::full({1}, o.empty(), at::kLong);
                           g.all_reduce(all, ReduceOp::min).wait();
                           if (all.item<int64_t>() == 1) {
                             groups.push_back(made);
                             continue;
                           }
                           const char* need =
                               "this process has used all 64 files that it may open. A group of n "
                               "ranks needs 2n - 1 in each process: raise 'ulimit -n'";
                           if (o.empty()) {  // it had met everybody: its first call says so
                             const std::string later = outcome_of([&] { made.barrier(); });
                             check<Error>(has(later, need) && has(later, "PeerLost: rank "),
                                          "made: {}", later);
                           } else {
                             check<Error>(has(o, need) && (has(o, "ResourceError: ") ||
                                                           has(o, "PeerLost: rank ")),
                                          "{}", o);
                           }
                           break;
                         }
                         check<Error>(!groups.empty(), "not one group");
                         at::Tensor t = at::ones({5000});
                         for (Group& other : groups) other.all_reduce(t).wait();
                         g.barrier();
                       }),
               "many groups");
}

// ---- memory

namespace {

constexpr size_t kMiB = size_t{1} << 20;

}  // namespace

TEST(faults_comm_engine_limits, an_arena_larger_than_the_cgroup_is_refused_and_the_group_lives) {
  MemoryLimit limit(64 * kMiB);
  if (!limit.why().empty()) GTEST_SKIP() << limit.why();
  expect_clean(limited(
                   2, [&](int) { limit.enter(); },
                   [](Group g) {
                     const std::string o = outcome_of([&] { g.empty({256 << 20}, at::kByte); });
                     check<Error>(has(o,
                                      "ResourceError: no memory for 268435456 bytes of "
                                      "shared memory: ") &&
                                      has(o, " is 67108864; ") && has(o, "raise the limit"),
                                  "{}", o);
                     everything(g);
                   }),
               "64 MiB");
}

TEST(faults_comm_engine_limits,
     ranks_that_fill_a_cgroup_together_are_refused_before_the_kernel_kills) {
  MemoryLimit limit(96 * kMiB);
  if (!limit.why().empty()) GTEST_SKIP() << limit.why();
  for (int64_t mib : {3, 8, 20, 60})
    expect_clean(
        limited(
            4, [&](int) { limit.enter(); },
            [mib](Group g) {
              std::vector<at::Tensor> blocks;
              std::string o;
              g.barrier();
              for (int i = 0; i < 50 && o.empty(); ++i)
                o = outcome_of([&] { blocks.push_back(g.empty({mib << 20}, at::kByte).fill_(1)); });
              check<Error>(has(o, "ResourceError: no memory for ") && has(o, " is 100663296; "),
                           "{} blocks, then '{}'", blocks.size(), o);
              g.barrier();
              at::Tensor t = at::ones({200000}, at::kByte);
              if (!blocks.empty()) t = blocks[0].narrow(0, 0, 200000);
              g.all_reduce(t).wait();
              check<Error>(t.eq(4).all().item<bool>(), "wrong sum");
            }),
        std::to_string(mib) + " MiB each");
}

TEST(faults_comm_engine_limits, a_cgroup_without_room_to_meet_in_is_named_on_all_ranks) {
  MemoryLimit limit(64 * kMiB);
  if (!limit.why().empty()) GTEST_SKIP() << limit.why();
  const auto outcomes = limited(
      2,
      [&](int rank) {
        if (rank != 1) return;
        limit.enter();
        static std::vector<std::vector<char>> held;  // what the program itself needs
        while (local::memory_room().bytes > 4 * kMiB - kMiB / 4) held.emplace_back(kMiB / 4, 1);
      },
      everything);
  EXPECT_TRUE(has(outcomes[1], "ResourceError: no memory for ") &&
              has(outcomes[1], " is 67108864; ") && !has(outcomes[1], "late"))
      << outcomes[1];
  EXPECT_TRUE(
      has(outcomes[0], "PeerLost: rank 1 could not share memory with the others: no memory for ") &&
      !has(outcomes[0], "late"))
      << outcomes[0];
}

}  // namespace trireme::testing::engine_limits_test
