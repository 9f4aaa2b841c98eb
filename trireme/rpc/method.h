// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/encoding.h"
#include "trireme/rpc/call.h"
#include "trireme/rpc/future_core.h"
#include "trireme/rpc/transit.h"

// Between remote.h, which knows the types of arguments and results, and the agent, which knows
// bytes.
namespace trireme::rpc::detail {

class Line;
class Agent;

/// A call that came, for its handler. Answered once; later answers, and those that nobody waits for
/// any more, are dropped.
class TRIREME_API Answering : public Call {
 public:
  ~Answering() override;
  /// For one reader, which must not outlive the call.
  virtual encoding::Reader arguments() = 0;
  /// To the caller.
  virtual std::shared_ptr<Line> line() const = 0;
  /// Into which the result is put.
  virtual encoding::Writer result() = 0;
  virtual void reply(encoding::Writer result) = 0;
  virtual void fail(std::exception_ptr error) = 0;

  /// The rest is for methods in order (Method::in_order), which say themselves what happens when.
  /// The handler is about to be called. False: it must not be, since nobody waits for it any more.
  virtual bool begin() = 0;
  /// Answers that its handler was not called, and why.
  virtual void never_began(std::exception_ptr error) = 0;
  /// Has `turn` called on a thread for handlers. Where this worker has none left for a call within
  /// a call (`nested`), or shuts down, `refused(why)` is called on this thread instead.
  virtual void on_a_thread(bool nested, std::function<void()> turn,
                           std::function<void(const std::string& why)> refused) = 0;
  virtual Executor& executor() = 0;
  /// The worker that was called. Null: it is being destroyed.
  virtual std::shared_ptr<Agent> agent() = 0;

 protected:
  using Call::Call;
};

/// Takes a handler's result where it does not travel (rpc/object).
class TRIREME_API Keeper {
 public:
  virtual ~Keeper();
  /// `type`: as base/encoding.h says it.
  virtual void keep(std::shared_ptr<void> value, std::string type,
                    std::function<void(encoding::Writer&)> put) = 0;
  virtual void fail(std::exception_ptr error) = 0;
};

/// A method that a worker offers.
struct Method {
  std::string name;
  std::string signature;
  /// Calls the handler on this thread; whatever it throws is answered.
  std::function<void(const std::shared_ptr<Answering>&)> run = {};
  /// It is short and waits for nothing: the thread that receives calls it, so that it needs none.
  bool at_once = false;
  /// run() is called on the thread that receives, with each worker's calls in the order in which it
  /// made them; it must not wait, and calls no handler itself.
  bool in_order = false;
  /// Its calls last as long as something does: no shutdown() waits for them.
  bool standing = false;
  /// run() with these arguments, and keeps the result. Null: it has none.
  std::function<void(const std::shared_ptr<Answering>&, encoding::Reader,
                     const std::shared_ptr<Keeper>&)>
      run_and_keep = {};
};

/// What makes an object from arguments, and what calls a member function of one (rpc/object).
using MakeObject = std::function<std::shared_ptr<void>(encoding::Reader)>;
using RunOnObject = std::function<void(const std::shared_ptr<void>& object,
                                       const std::shared_ptr<Answering>&, encoding::Reader)>;

/// A call that is to be made.
struct Outgoing {
  const char* method = "";
  const std::string* signature = nullptr;  // of static storage
  encoding::Writer arguments;
  std::shared_ptr<FutureCore> future;
  bool standing = false;  // as Method's
  /// Fills the future, which lives as long, from its reply.
  std::function<void(encoding::Reader&)> fill;
  /// Null: it is in no context.
  std::shared_ptr<Crossing> crossing = {};
  /// Null: no reference is among its arguments.
  std::shared_ptr<Passage> passage = {};
};

class Objects;

/// To one worker.
class TRIREME_API Line {
 public:
  virtual ~Line();
  virtual const std::string& peer() const = 0;
  /// The peer's number, which no other worker of the job ever has.
  virtual int64_t member() const = 0;
  /// Its channel is there.
  virtual bool open() const = 0;
  /// Whether the peer has a method of this name.
  virtual bool offers(const std::string& method) const = 0;
  /// Of the worker that calls; null: it has none.
  virtual const std::shared_ptr<Carrier>& carrier() const = 0;
  /// What futures of its calls are made with.
  virtual const std::shared_ptr<Executor>& executor() const = 0;
  virtual int road() const = 0;
  /// What the worker that calls has and knows of objects; null: it has shut down.
  virtual std::shared_ptr<Objects> objects() const = 0;
  /// A number that no other session of that worker has.
  virtual uint64_t link() const = 0;
  /// Memory for an attachment that travels to it without a copy, where the road has such.
  virtual std::shared_ptr<void> empty(uint64_t bytes) = 0;
  /// Whatever becomes of it is in the future; where that is an error before it has left, at once.
  virtual void call(Outgoing outgoing, Deadline deadline) = 0;
};

}  // namespace trireme::rpc::detail
