// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/encoding.h"
#include "trireme/base/export.h"
#include "trireme/rpc/method.h"
#include "trireme/rpc/object/ledger.h"

namespace trireme::rpc::detail {

class Crew;
class Deadlines;

/// One hold of an object of another worker. Guarded by its Objects.
struct Hold;
/// One object of this worker. Guarded by its Objects.
struct Kept;

/// What copies of one RRef share: a use of the object. Threads: any.
class TRIREME_API Reference {
 public:
  Reference(std::shared_ptr<Objects> at, const ObjectId& object, std::string owner,
            std::string kind, std::string where, std::shared_ptr<Hold> hold);
  ~Reference();
  Reference(const Reference&) = delete;

  const std::shared_ptr<Objects>& at() const { return at_; }
  const ObjectId& object() const { return object_; }
  const std::string& owner() const { return owner_; }
  const std::string& kind() const { return kind_; }
  /// "table.cc:12", where the first RRef was made.
  const std::string& where() const { return where_; }
  /// Null: the object is this worker's.
  const std::shared_ptr<Hold>& hold() const { return hold_; }

 private:
  const std::shared_ptr<Objects> at_;
  const ObjectId object_;
  const std::string owner_, kind_, where_;
  const std::shared_ptr<Hold> hold_;
};

/// What a worker has of objects: its own, which others refer to, and references to others'. Does
/// what its Ledger says. Threads: any.
class TRIREME_API Objects : public std::enable_shared_from_this<Objects> {
 public:
  /// `methods`: of the worker; used while it answers calls.
  Objects(std::string worker, int64_t member, std::shared_ptr<Crew> crew,
          std::shared_ptr<Deadlines> deadlines, Duration deadline,
          const std::vector<Method>* methods);
  ~Objects();

  // Of its agent.

  using Reach = std::function<std::shared_ptr<Line>(int64_t member, const std::string& name)>;
  void reach_by(Reach reach);
  /// What every worker answers, so that references can be counted.
  std::vector<Method> methods();
  void opened(const std::shared_ptr<Line>& line);
  void lost(uint64_t link, const std::string& peer, const std::string& why);
  /// The other end does not wait for the answer to this call any more.
  void given_up(uint64_t link, uint64_t call);
  /// Nothing that others are to be told is still to be sent.
  bool idle() const { return acting_ == 0; }
  /// The worker shuts down: tells what is still referred to, and frees it.
  void leave();

  // Of RRefs.

  const std::string& worker() const { return worker_; }
  std::shared_ptr<Executor> executor() const;
  /// Of calls that are given none.
  Duration deadline() const { return deadline_; }
  bool owns(const Reference& reference) const { return reference.object().owner == member_; }
  /// Begins to make an object at the other end of `line`; made() goes on.
  std::shared_ptr<Reference> begin(const std::shared_ptr<Line>& line, const std::string& kind,
                                   const std::string& where);
  void made(const std::shared_ptr<Reference>& reference, std::exception_ptr error);
  /// Of a reference that begin() returned.
  static uint64_t life_of(const Reference& reference);
  /// One of this worker.
  std::shared_ptr<Reference> own(std::shared_ptr<void> value, const std::string& kind,
                                 std::function<void(encoding::Writer&)> put,
                                 const std::string& where);
  static void put(encoding::Writer& writer, const std::shared_ptr<const Reference>& reference);
  static std::shared_ptr<Reference> get(encoding::Reader& reader, const std::string& kind);

  /// Calls `send` with the line to the owner once the object can be called; else the future fails.
  /// In the order of its calls.
  void when_usable(const std::shared_ptr<const Reference>& reference, Deadline deadline,
                   const std::shared_ptr<FutureCore>& future,
                   std::function<void(const std::shared_ptr<Line>&)> send);
  bool confirmed(const Reference& reference) const;
  /// The future is an object of this worker, once it is there.
  void local(const Reference& reference, Deadline deadline,
             const std::shared_ptr<FutureState<std::shared_ptr<void>>>& future);

  // Of methods that are called.

  void make(const std::shared_ptr<Answering>& call, const std::string& kind,
            const MakeObject& make);
  void run(const std::shared_ptr<Answering>& call, const std::string& kind, const RunOnObject& run);
  /// References and things that are counted, for tests.
  struct Counts {
    size_t owned, held, passed, marks;
  };
  Counts counts() const;

 private:
  friend class Reference;
  friend class PassedOn;
  friend class KeptKeeper;
  using Then = std::function<void(const std::shared_ptr<Kept>&, std::exception_ptr)>;

  void drop(const ObjectId& object, const std::shared_ptr<Hold>& hold);
  void passage_ended(uint64_t link, const std::vector<uint64_t>& tokens, int fate);
  void answered(const std::shared_ptr<Hold>& hold, const std::exception_ptr& error);
  void claim(const std::shared_ptr<Hold>& hold);
  void act(std::unique_lock<std::mutex>& lock);
  void post(std::function<void()> task);
  void tell(const Ledger::Act& act);
  void fail_hold(const std::shared_ptr<Hold>& hold, const std::exception_ptr& error);
  void drain(const std::shared_ptr<Hold>& hold);
  void fail_late(const std::shared_ptr<FutureCore>& future, Deadline deadline,
                 const std::string& what);
  void keep(const std::shared_ptr<Kept>& stored, std::shared_ptr<void> value,
            std::function<void(encoding::Writer&)> put, const std::exception_ptr& error);
  std::shared_ptr<Kept> announce(const std::shared_ptr<Answering>& call, const ObjectId& object,
                                 uint64_t life, const std::string& where);
  /// Now, or once it is there.
  void find(const ObjectId& object, const std::string& kind, Then then);
  void make_by_function(const std::shared_ptr<Answering>& call);
  void fetch(const std::shared_ptr<Answering>& call);

  const std::string worker_;
  const int64_t member_;
  const std::shared_ptr<Crew> crew_;
  const std::shared_ptr<Deadlines> deadlines_;
  const Duration deadline_;
  const std::vector<Method>* const methods_;
  std::atomic<int64_t> acting_{0};

  mutable std::mutex mutex_;
  bool left_ = false;
  Reach reach_;
  Ledger ledger_;
  std::map<uint64_t, std::weak_ptr<Line>> lines_;
  std::map<uint64_t, std::shared_ptr<Hold>> holds_;  // by life
  std::map<ObjectId, std::shared_ptr<Kept>> stored_;
  std::map<int64_t, std::string> names_;  // of workers, by their numbers
};

/// "table.cc:12", the last part of the path.
TRIREME_API std::string call_site(const char* file, unsigned line);

}  // namespace trireme::rpc::detail
