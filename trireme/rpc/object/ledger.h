// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"

// Who refers to which object: one worker's books, as numbers. What happens goes in, what is to be
// said to others comes out; nothing is said or freed here.
//
// An owner keeps, for each object, the holds of other workers. A worker has one hold of an object,
// a *life*, however many references to it the worker has; a life's number is never used again, so
// that messages about holds may overtake each other. The rules:
//
//   1. A hold is released only after its owner has confirmed it, or, by who made the object,
//      whatever became of that.
//   2. Who passes a reference on counts as a user of it himself until the receiver has settled it.
//   3. A receiver settles what it has read once its own hold is confirmed, or refused.
//   4. What a message was to bring and nobody will read is taken back: at once where it cannot be
//      read any more, else by asking the receiver, which then refuses to read it.
//   5. A link that breaks ends the holds that were claimed by it and settles what went over it.
//
// By 1 to 3 the owner of an object that anybody refers to has a hold of it, or a forwarder has,
// from the forwarder's own hold on: the object is not freed. By 4 and 5 each count goes back to
// zero.
namespace trireme::rpc::detail {

/// An object, in all workers of a job. Numbers are its maker's, counted for each owner from 1.
struct ObjectId {
  int64_t owner = 0;  // a worker's number in the job's store
  int64_t maker = 0;
  uint64_t number = 0;
  auto operator<=>(const ObjectId&) const = default;
  TRIREME_FIELDS(owner, maker, number)
};

/// Not thread-safe.
class TRIREME_API Ledger {
 public:
  using Link = uint64_t;   // one session with another worker, numbered by this one
  using Life = uint64_t;   // of a hold of ours; 0: the object is ours
  using Token = uint64_t;  // a reference that was passed on, numbered by who did

  /// Says to the owner, on any link, that this worker refers to the object; answered().
  struct Claim {
    ObjectId object;
    Life life;
  };
  struct Release {
    Link link;
    ObjectId object;
    Life life;
  };
  /// What came with this token needs its sender no more.
  struct Settle {
    Link link;
    Token token;
  };
  /// Asks which of these were not read and, where their call may still run, will not be.
  struct Withdraw {
    Link link;
    std::vector<Token> tokens;
    bool may_run;
  };
  /// The object is nobody's.
  struct Free {
    ObjectId object;
  };
  /// An object that was announced will not be made.
  struct Unborn {
    ObjectId object;
  };
  /// The link to the owner is gone.
  struct Broken {
    Life life;
  };
  /// Nobody uses it any more.
  struct Ended {
    Life life;
  };
  using Act = std::variant<Claim, Release, Settle, Withdraw, Free, Unborn, Broken, Ended>;

  explicit Ledger(int64_t me) : me_(me) {}
  /// What is to be done since the last call of it, in any order.
  std::vector<Act> take() { return std::exchange(acts_, {}); }

  void opened(Link link, int64_t peer);
  void lost(Link link);

  // Of a worker that refers to others' objects.

  struct Made {
    ObjectId object;
    Life life = 0;
  };
  /// One to be made by its owner at the other end of `link`; answered() says what became of it.
  Made make(int64_t owner, Link link);
  /// The claim of this life leaves on `link`. False: no longer wanted, or the link is gone.
  bool claims(Life life, Link link);
  void answered(Life life, bool confirmed);
  /// A reference came. None: it was taken back, or the object is gone.
  std::optional<Life> read(const ObjectId& object, Link from, Token token);
  /// One more user of a life, or of an object that is ours.
  void use(const ObjectId& object, Life life);
  void drop(const ObjectId& object, Life life);

  // Of a worker that passes references on.

  /// It is being put into a message. `answer_to`: of the answer to that call on the link.
  Token pass(const ObjectId& object, Life life, Link to, std::optional<uint64_t> answer_to);
  void settled(Link from, Token token);
  /// They never left, or the receiver does not have them (the answer to Withdraw).
  void take_back(const std::vector<Token>& tokens);
  /// The call that they were arguments of has failed.
  void call_failed(Link to, std::vector<Token> tokens, bool may_run);
  /// The other end does not wait for the answer to this call, and will not read it.
  void given_up(Link to, uint64_t answer_to);
  /// Of a receiver: the answer to Withdraw.
  std::vector<Token> withdraw(Link from, const std::vector<Token>& tokens, bool may_run);

  // Of an owner.

  /// One that is made here, by this worker itself, for one user.
  ObjectId own();
  /// False: it is not to be made (any more).
  bool make_for(const ObjectId& object, Link link, Life life);
  /// False: there is no such object, and there will not be.
  bool claimed(const ObjectId& object, Link link, Life life);
  void released(const ObjectId& object, Link link, Life life);
  bool owns(const ObjectId& object) const { return owned_.contains(object); }
  /// Workers that have a hold of it, this one apart.
  std::set<int64_t> users(const ObjectId& object) const;

  size_t owned() const { return owned_.size(); }
  size_t held() const { return held_.size(); }
  size_t passed() const { return passed_.size(); }
  size_t marks() const { return marks_.size(); }

  /// Tokens that were withdrawn from calls that may still run, of all links; beyond that, the
  /// oldest are forgotten, and a late reader of one may find its object gone.
  static constexpr size_t kMostMarks = 65536;

 private:
  enum class State { asking, confirmed, refused, broken };
  struct Held {
    ObjectId object;
    uint64_t uses = 1;
    State state = State::asking;
    bool made = false;  // by this worker
    Link link = 0;      // 0: the claim has not left
    std::vector<std::pair<Link, Token>> unsettled = {};
  };
  struct Owned {
    std::set<std::pair<Link, Life>> holds = {};
    uint64_t uses = 0;
    bool made = false;  // false: only announced, by who refers to it
    bool unborn = false;
  };
  struct Passed {
    ObjectId object;
    Life life;
    Link link;
    std::optional<uint64_t> answer_to;
  };
  /// Which numbers of a maker have come.
  struct Seen {
    uint64_t up_to = 0;
    std::set<uint64_t> beyond = {};
    bool contains(uint64_t number) const { return number <= up_to || beyond.contains(number); }
    void add(uint64_t number);
  };

  bool may_come(const ObjectId& object) const;
  void settle(Held& held);
  void unpass(std::map<Token, Passed>::iterator passed);
  void end_if_unused(Life life);
  void free_if_unused(const ObjectId& object);

  const int64_t me_;
  std::vector<Act> acts_;
  std::map<Link, int64_t> links_;
  std::set<int64_t> gone_;
  std::map<Life, Held> held_;
  std::map<ObjectId, Life> current_;
  std::map<int64_t, uint64_t> numbers_;  // of objects that this worker made, by owner
  Life last_life_ = 0;
  Token last_token_ = 0;
  std::map<Token, Passed> passed_;
  std::set<std::pair<Link, Token>> unsettled_;
  std::set<std::pair<Link, Token>> marks_;
  std::map<ObjectId, Owned> owned_;
  std::map<int64_t, Seen> seen_;
};

}  // namespace trireme::rpc::detail
