// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

// Which launchers are in an elastic job (--nnodes MIN:MAX), as the one that keeps the job's store
// decides it. Pure: events and the time in, actions out.
namespace trireme::launch {

/// A launcher that has come to the job.
struct Member {
  std::string token;  // unlike any other's, and unlike its own if it comes again
  std::string host;
  int workers = 1;
  std::string address = {};  // of the store that it keeps, or stands by with; "": it has none

  bool operator==(const Member&) const = default;
};

struct MembershipRules {
  int least = 1, most = 1;                            // of members: MIN:MAX
  Duration last_call = std::chrono::seconds(30);      // the first time, for more than the least
  Duration join_timeout = std::chrono::seconds(600);  // for the least
  /// A host of which launchers were lost sits out before it is taken again: so long the first time,
  /// twice as long each time after. Losses older than `forgiven_after` do not count.
  Duration sit_out = std::chrono::seconds(5);
  Duration longest_sit_out = std::chrono::seconds(300);
  Duration forgiven_after = std::chrono::minutes(30);
};

/// The members of one start of the workers. Its number is larger than that of each one before.
struct Generation {
  int64_t number = -1;
  std::vector<Member> members;  // in the order of their ranks
  std::string keeper = {};      // the token of the launcher that keeps the store

  bool operator==(const Generation&) const = default;
};

/// What happened.
struct MembershipEvent {
  enum Kind {
    came,       // `member`
    lost,       // `member.token`: without a word
    leaves,     // `member.token`: it was asked to stop, and so were its workers
    ended,      // `member.token`: it has no worker of the generation any more
    broken_off  // the generation, by a failure
  };
  Kind kind = came;
  Member member;
};

/// What is to be done.
struct MembershipAction {
  enum Kind {
    begin,      // the workers of `generation`
    break_off,  // the generation, because of `sentence`: all its workers end
    all_ended,  // no member has a worker of the generation any more
    give_up     // the job, because of `sentence`
  };
  Kind kind = begin;
  Generation generation;
  std::string sentence;
};

/// Members keep their order from one generation to the next, and those that come are put behind
/// them; beyond `most` they wait as spares. A generation begins when the one before has ended at
/// all members that are left:
///   the first one   with `most`, or with `least` after the last call
///   later ones      at once with those that are there, if they are `least`
/// After a store that was lost members of its last generation come in any order, and have it again.
/// A member that is lost or leaves breaks a generation off, and so does one that comes while there
/// is room, unless workers have ended well already. Fewer than `least` are waited with for
/// `join_timeout`.
class TRIREME_API Membership {
 public:
  explicit Membership(MembershipRules rules);
  /// Goes on after `last`, whose store is lost: the next generation begins with those of its
  /// members that have come, once `expected` have or `last_call` has passed, and has a larger
  /// number.
  Membership(MembershipRules rules, Generation last, int expected);

  std::vector<MembershipAction> on(const MembershipEvent& event, Clock::time_point now);
  /// Time has passed. Call it several times a second.
  std::vector<MembershipAction> tick(Clock::time_point now);

  const Generation& generation() const { return generation_; }
  bool running() const { return stage_ == Stage::running; }
  /// How many launchers are there, spares too.
  int present() const { return static_cast<int>(present_.size()); }

 private:
  enum class Stage { gathering, running, ending, over };
  struct Present {
    Member member;
    bool ended = true, leaves = false;
    Clock::time_point since, from;  // when it came; from when on it may be a member
  };
  struct Losses {
    int count = 0;
    Clock::time_point last;
  };

  void come(const Member& member, Clock::time_point now);
  void go(const MembershipEvent& event, Clock::time_point now);
  std::vector<MembershipAction> while_gathering(Clock::time_point now);
  std::vector<MembershipAction> while_running(Clock::time_point now);
  std::vector<MembershipAction> while_ending(Clock::time_point now);
  MembershipAction begin(std::vector<Present> members);
  MembershipAction break_off(std::string sentence);
  int number_of(const std::string& token) const;

  const MembershipRules rules_;
  const int expected_ = 0;  // of the first generation, where it goes on after another's
  bool begun_ = false;      // a generation, here
  Stage stage_ = Stage::gathering;
  Generation generation_;
  std::vector<Present> present_;          // members first, in their order
  std::map<std::string, Losses> losses_;  // by host
  std::optional<Clock::time_point> gathering_since_, enough_since_;
  std::string broken_off_;  // why; "": not, or not told yet
};

}  // namespace trireme::launch
