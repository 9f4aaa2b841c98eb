// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/membership/membership.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "trireme/base/error.h"
#include "trireme/launch/membership/announcement.h"

namespace trireme::launch::membership_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

Member member(const std::string& name, int workers = 1) { return {name + "#1", name, workers}; }
std::vector<std::string> hosts(const Generation& generation) {
  std::vector<std::string> names;
  for (const Member& m : generation.members) names.push_back(m.host);
  return names;
}
using Hosts = std::vector<std::string>;

/// A job whose events happen when a test says so.
class Job {
 public:
  explicit Job(int least, int most) : membership_(rules(least, most)) {}
  static MembershipRules rules(int least, int most) {
    MembershipRules r;
    r.least = least;
    r.most = most;
    return r;
  }
  void pass(Duration time) {
    for (const auto end = now_ + time; now_ < end; now_ += milliseconds(50))
      take(membership_.tick(now_));
  }
  void comes(const std::string& name) {
    take(membership_.on({MembershipEvent::came, member(name)}, now_));
  }
  void is_lost(const std::string& name) {
    take(membership_.on({MembershipEvent::lost, member(name)}, now_));
  }
  void leaves(const std::string& name) {
    take(membership_.on({MembershipEvent::leaves, member(name)}, now_));
  }
  void fails() { take(membership_.on({MembershipEvent::broken_off, {}}, now_)); }
  void ends(const std::string& name) {
    take(membership_.on({MembershipEvent::ended, member(name)}, now_));
  }
  /// What was to be done since the last call, in words.
  std::string done() {
    std::string text;
    for (const MembershipAction& a : actions_) {
      if (a.kind == MembershipAction::begin) {
        text += "begin " + std::to_string(a.generation.number);
        for (const std::string& host : hosts(a.generation)) text += " " + host;
      } else if (a.kind == MembershipAction::break_off) {
        text += "break off: " + a.sentence;
      } else if (a.kind == MembershipAction::all_ended) {
        text += "all ended";
      } else {
        text += "give up: " + a.sentence;
      }
      text += "\n";
    }
    actions_.clear();
    return text;
  }

 private:
  void take(const std::vector<MembershipAction>& actions) {
    actions_.insert(actions_.end(), actions.begin(), actions.end());
  }
  Membership membership_;
  Clock::time_point now_ = Clock::time_point(minutes(1));
  std::vector<MembershipAction> actions_;
};

TEST(launch_membership, begins_at_once_with_the_most_and_after_the_last_call_with_the_least) {
  Job full(1, 3);
  for (const char* name : {"a", "b", "c"}) full.comes(name);
  EXPECT_EQ(full.done(), "begin 0 a b c\n");
  Job few(2, 3);
  few.comes("a");
  few.pass(minutes(5));
  EXPECT_EQ(few.done(), "");
  few.comes("b");
  few.pass(seconds(29));
  EXPECT_EQ(few.done(), "");
  few.pass(seconds(2));
  EXPECT_EQ(few.done(), "begin 0 a b\n");
}

TEST(launch_membership, too_few_are_waited_with_and_then_given_up) {
  Job job(2, 3);
  job.comes("a");
  job.pass(seconds(601));
  EXPECT_EQ(job.done(),
            "give up: 1 of at least 2 nodes were there after 600 s: start 'trireme run' with the "
            "same flags on more, or see why they ended\n");
  job.comes("b");
  job.pass(seconds(60));
  EXPECT_EQ(job.done(), "") << "it is over";
}

TEST(launch_membership, a_loss_breaks_off_and_the_others_begin_when_all_of_them_have_ended) {
  Job job(1, 3);
  for (const char* name : {"a", "b", "c"}) job.comes(name);
  job.done();
  job.is_lost("b");
  EXPECT_EQ(job.done(),
            "break off: node 1 (b) is gone: its launcher ended without a word, or its host or the "
            "network to it did\n");
  job.ends("a");
  job.pass(seconds(5));
  EXPECT_EQ(job.done(), "") << "c still has workers";
  job.ends("c");
  job.pass(milliseconds(50));
  EXPECT_EQ(job.done(), "all ended\nbegin 1 a c\n");
}

TEST(launch_membership, one_that_leaves_is_waited_for_until_its_workers_are_gone) {
  Job job(1, 2);
  job.comes("a");
  job.comes("b");
  job.done();
  job.leaves("b");
  EXPECT_EQ(job.done(), "break off: node 1 (b) was asked to stop and leaves\n");
  job.ends("a");
  job.pass(seconds(20));
  EXPECT_EQ(job.done(), "") << "the workers of b save";
  job.ends("b");
  job.pass(milliseconds(50));
  EXPECT_EQ(job.done(), "all ended\nbegin 1 a\n");
  // And so while a generation ends already, or before one begins.
  job.comes("c");
  job.pass(seconds(2));
  EXPECT_EQ(job.done(), "break off: a node (c) has come\n");
  job.leaves("a");
  job.leaves("c");
  job.comes("d");
  job.ends("a");
  job.pass(milliseconds(50));
  EXPECT_EQ(job.done(), "all ended\nbegin 2 d\n");
}

TEST(launch_membership, who_comes_when_workers_have_ended_well_breaks_nothing_off) {
  Job job(1, 3);
  job.comes("a");
  job.comes("b");
  job.pass(seconds(31));
  EXPECT_EQ(job.done(), "begin 0 a b\n");
  job.ends("b");
  job.comes("c");
  job.pass(minutes(1));
  EXPECT_EQ(job.done(), "");
}

TEST(launch_membership, who_comes_while_there_is_room_breaks_off_once_and_is_put_behind) {
  Job job(1, 3);
  job.comes("a");
  job.pass(seconds(31));
  EXPECT_EQ(job.done(), "begin 0 a\n");
  job.comes("b");
  job.pass(milliseconds(500));
  job.comes("c");
  EXPECT_EQ(job.done(), "") << "others may come with it";
  job.pass(seconds(1));
  EXPECT_EQ(job.done(), "break off: a node (b) has come\n");
  job.ends("a");
  job.pass(milliseconds(50));
  EXPECT_EQ(job.done(), "all ended\nbegin 1 a b c\n");
}

TEST(launch_membership, spares_wait_and_take_the_place_of_who_is_lost) {
  Job job(2, 2);
  for (const char* name : {"a", "b", "c", "d"}) job.comes(name);
  job.pass(minutes(2));
  EXPECT_EQ(job.done(), "begin 0 a b\n");
  job.is_lost("c");
  job.pass(minutes(1));
  EXPECT_EQ(job.done(), "") << "a spare that goes is nobody's affair";
  job.is_lost("a");
  job.ends("b");
  job.pass(milliseconds(50));
  const std::string done = job.done();
  EXPECT_NE(done.find("all ended\nbegin 1 b d\n"), std::string::npos) << done;
}

TEST(launch_membership, a_host_that_is_lost_again_and_again_sits_out_longer_each_time) {
  Membership job(Job::rules(1, 2));
  Clock::time_point now = Clock::time_point(minutes(1));
  int64_t serial = 0;
  const auto until_it_is_taken = [&](const std::string& host) {
    const Member again{host + std::to_string(++serial), host, 1};
    job.on({MembershipEvent::came, again}, now);
    const auto start = now;
    while (now - start < minutes(10)) {
      now += milliseconds(50);
      job.tick(now);
      if (!job.running())
        for (const Member& m : Generation(job.generation()).members)
          job.on({MembershipEvent::ended, m}, now);
      job.tick(now);
      const auto& members = job.generation().members;
      if (std::count(members.begin(), members.end(), again)) break;
    }
    const Duration waited = now - start;
    job.on({MembershipEvent::lost, again}, now);
    job.on({MembershipEvent::ended, {"a#1", "a", 1}}, now);
    return waited;
  };
  job.on({MembershipEvent::came, member("a")}, now);
  now += seconds(31);
  job.tick(now);
  EXPECT_LT(until_it_is_taken("b"), seconds(2));
  Duration before{};
  for (int i = 0; i < 6; ++i) {
    const Duration waited = until_it_is_taken("b");
    EXPECT_GE(waited, seconds(5) * (1 << i));
    EXPECT_LT(waited, seconds(5) * (1 << i) + seconds(1));
    before = waited;
  }
  EXPECT_LT(until_it_is_taken("other"), seconds(2)) << "others do not pay for it";
  now += minutes(31);
  EXPECT_LT(until_it_is_taken("b"), seconds(2)) << "it is forgiven";
}

// Launchers that come, are killed, leave and fail, and messages of theirs that arrive late: what a
// coordinator sees. Those that are alive do what it says, late too.
class History {
 public:
  explicit History(uint64_t seed) : random_(seed) {
    most_ = pick(1, 16);
    least_ = pick(1, most_);
    MembershipRules rules = Job::rules(least_, most_);
    rules.join_timeout = std::chrono::hours(24);
    membership_ = std::make_unique<Membership>(rules);
    const int moments = pick(20, 120);
    for (int i = 0; i < moments; ++i) {
      happen();
      run(milliseconds(pick(0, 2000)));
    }
    run(seconds(40));
    for (int i = 0; i < 40 && !settled(); ++i) run(seconds(10));
  }
  std::string fault;
  int generations = 0;

  /// Enough are there, so they run, and as many as there may be.
  bool settled() {
    const int alive = static_cast<int>(
        std::count_if(agents_.begin(), agents_.end(), [](const Agent& a) { return a.alive; }));
    if (alive < least_) return true;
    const auto running = std::count_if(agents_.begin(), agents_.end(),
                                       [](const Agent& a) { return a.alive && a.running >= 0; });
    return running == std::min(alive, most_);
  }

 private:
  struct Agent {
    Member member;
    bool alive = true, leaves = false;
    int64_t running = -1;
  };
  struct Later {
    Clock::time_point at;
    std::function<void()> what;
  };

  int pick(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random_); }
  void later(int most_ms, std::function<void()> what) {
    later_.push_back({now_ + milliseconds(pick(0, most_ms)), std::move(what)});
  }
  size_t some_alive() {
    std::vector<size_t> alive;
    for (size_t i = 0; i < agents_.size(); ++i)
      if (agents_[i].alive) alive.push_back(i);
    return alive.empty() ? agents_.size()
                         : alive[static_cast<size_t>(pick(0, static_cast<int>(alive.size()) - 1))];
  }
  void tell(MembershipEvent event, int most_ms) {
    later(most_ms, [this, event] { take(membership_->on(event, now_)); });
  }

  void happen() {
    const int what = pick(0, 9);
    const size_t i = some_alive();
    const auto alive =
        std::count_if(agents_.begin(), agents_.end(), [](auto& a) { return a.alive; });
    if (what < 5 && alive < 16) {
      const std::string host = "h" + std::to_string(pick(0, 15));
      agents_.push_back({{host + "#" + std::to_string(agents_.size()), host, pick(1, 8)}});
      take(membership_->on({MembershipEvent::came, agents_.back().member}, now_));
    } else if (i == agents_.size()) {
      return;
    } else if (what < 7) {
      agents_[i].alive = false;
      agents_[i].running = -1;
      tell({MembershipEvent::lost, agents_[i].member}, 5000);
    } else if (what < 8) {
      // Its workers have time to save.
      agents_[i].alive = false;
      agents_[i].leaves = true;
      const Member leaver = agents_[i].member;
      take(membership_->on({MembershipEvent::leaves, leaver}, now_));
      later(3000, [this, i, leaver] {
        agents_[i].running = -1;
        tell({MembershipEvent::ended, leaver}, 1000);
      });
    } else if (agents_[i].running >= 0 && agents_[i].running == membership_->generation().number &&
               membership_->running()) {
      take(membership_->on({MembershipEvent::broken_off, {}}, now_));
      end_all(membership_->generation().number);
    }
  }

  void end_all(int64_t generation) {
    for (size_t i = 0; i < agents_.size(); ++i)
      later(3000, [this, i, generation] {
        Agent& a = agents_[i];
        // The next one waits for this.
        const Generation& g = membership_->generation();
        if (g.number != generation || !a.alive ||
            !std::count(g.members.begin(), g.members.end(), a.member))
          return;
        a.running = -1;
        broken_off_.insert(generation);
        // The words of one generation are not taken for another's.
        later(1000, [this, generation, member = a.member] {
          if (membership_->generation().number == generation)
            take(membership_->on({MembershipEvent::ended, member}, now_));
        });
      });
  }

  void take(const std::vector<MembershipAction>& actions) {
    for (const MembershipAction& action : actions) {
      const Generation& g = action.generation;
      if (action.kind == MembershipAction::break_off) end_all(g.number);
      if (action.kind == MembershipAction::give_up) fault = "given up: " + action.sentence;
      if (action.kind != MembershipAction::begin) continue;
      ++generations;
      check(g);
      last_ = g.number;
      for (size_t i = 0; i < agents_.size(); ++i)
        if (std::count(g.members.begin(), g.members.end(), agents_[i].member))
          later(1000, [this, i, n = g.number] {
            // A launcher looks whether it was broken off before it starts its workers.
            if (agents_[i].alive && !broken_off_.count(n) && membership_->generation().number == n)
              agents_[i].running = n;
          });
    }
  }

  void check(const Generation& g) {
    std::set<std::string> tokens;
    for (const Member& m : g.members) {
      tokens.insert(m.token);
      const bool known = std::any_of(agents_.begin(), agents_.end(),
                                     [&](const Agent& a) { return a.member == m; });
      if (!known) fault = "a member that nobody is";
    }
    const int count = static_cast<int>(g.members.size());
    if (static_cast<int>(tokens.size()) != count) fault = "a launcher that is a member twice";
    if (count < least_ || count > most_) fault = "too few or too many members";
    if (g.number <= last_) fault = "a number that was there before";
    for (const Agent& a : agents_)
      if ((a.alive || a.leaves) && a.running >= 0)
        fault = "workers of a generation before are still there";
  }

  void run(Duration time) {
    for (const auto end = now_ + time; now_ < end; now_ += milliseconds(100)) {
      for (size_t i = 0; i < later_.size();) {
        if (later_[i].at > now_) {
          ++i;
          continue;
        }
        const auto what = std::move(later_[i].what);
        later_.erase(later_.begin() + static_cast<std::ptrdiff_t>(i));
        what();
      }
      take(membership_->tick(now_));
    }
  }

  std::mt19937_64 random_;
  int least_ = 1, most_ = 1;
  std::unique_ptr<Membership> membership_;
  Clock::time_point now_ = Clock::time_point(minutes(1));
  std::deque<Agent> agents_;
  std::vector<Later> later_;
  std::set<int64_t> broken_off_;
  int64_t last_ = -1;
};

TEST(launch_membership, in_any_history_one_generation_acts_and_enough_nodes_go_on) {
  int generations = 0;
  const uint64_t seeds = ::getenv("TRIREME_SOAK") ? 100'000 : 10'000;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    History history(seed);
    ASSERT_EQ(history.fault, "") << "seed " << seed;
    ASSERT_TRUE(history.settled()) << "seed " << seed;
    generations += history.generations;
  }
  EXPECT_GT(generations, 20'000) << "the histories are not of nothing";
}

TEST(launch_membership, an_announcement_comes_back_as_it_was_sent_and_other_words_are_refused) {
  const Generation before{5, {{"t0", "c", 4, "c:1"}}, "t0"};
  const Announcement a{
      {7, {{"t1", "host \"a\"", 8, "a:1"}, {"t2", "b", 1, "b:2"}}, "t1"}, 2, "job", 40, {before}};
  EXPECT_EQ(read_announcement(to_text(a)), a);
  // As it has been since this version of it.
  EXPECT_EQ(
      read_announcement(
          R"({"before":[{"generation":5,"keeper":"t0","members":[{"address":"c:1","host":"c",)"
          R"("token":"t0","workers":4}]}],"claims_from":40,"generation":7,"job":"job","keeper":"t1",)"
          R"("members":[{"address":"a:1","host":"host \"a\"","token":"t1","workers":8},)"
          R"({"address":"b:2","host":"b","token":"t2","workers":1}],"restarts":2,)"
          R"("version":"trireme members 2"})"),
      a);
  EXPECT_EQ(read_member(to_text(a.generation.members[0])), a.generation.members[0]);
  const auto with = [&](const char* name, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(to_text(a));
    json[name] = value;
    return json.dump();
  };
  const auto member = [](const nlohmann::json& token, int workers) {
    return nlohmann::json{{{"token", token}, {"host", "h"}, {"workers", workers}, {"address", ""}}};
  };
  EXPECT_NO_THROW(read_announcement(with("members", member("t", 1))));
  const nlohmann::json same{{{"generation", 7}, {"keeper", "t"}, {"members", member("t", 1)}}};
  for (const std::string& bad :
       {std::string(), std::string("{}"), std::string("[]"), with("version", "trireme members 1"),
        with("members", nlohmann::json::array()), with("generation", -1), with("restarts", -1),
        with("claims_from", -1), with("claims_from", int64_t{1} << 50), with("job", 7),
        with("members", member("t", 0)), with("members", member(7, 1)),
        with("members", member("", 1)), with("members", std::vector(4097, member("t", 1)[0])),
        with("before", same), with("before", std::vector(17, a.before.size()))})
    EXPECT_THROW(read_announcement(bad), Corrupt) << bad.substr(0, 100);
}

}  // namespace
}  // namespace trireme::launch::membership_test
