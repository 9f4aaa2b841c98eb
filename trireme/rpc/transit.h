// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"
#include "trireme/rpc/wire/messages.h"

// What travels with a call beside its arguments and its result: the seam by which parts of a
// program that stand on calls (rpc/autograd) see all that leaves and comes within a context.
namespace trireme::rpc::detail {

class Executor;
class Line;

/// One call within a context, at one of its ends. There is one for each end, from before the
/// arguments are written or read until after the result is. Not used by two threads at once.
class TRIREME_API Crossing {
 public:
  virtual ~Crossing();
  /// What the call says of it.
  virtual wire::Context said() const = 0;
};

/// What the arguments of a call have that their sender keeps until it has arrived (rpc/object). Its
/// last owner destroys it once the call has ended.
class TRIREME_API Passage {
 public:
  enum class Fate {
    unread,     // it has not left, or its handler was not called
    under_way,  // and nobody waits for it any more
    answered,   // by its handler's result
    failed      // by its handler's error: not all of it need have been read
  };
  virtual ~Passage();
  Fate fate = Fate::unread;
};

/// The other worker, while values of a call are written for it or read from it.
class TRIREME_API CallTransit final : public encoding::Transit {
 public:
  /// `answers`: the number of the call whose handler's end this is.
  CallTransit(std::shared_ptr<Line> line, std::shared_ptr<Crossing> crossing,
              std::optional<uint64_t> answers = {})
      : line_(std::move(line)), crossing_(std::move(crossing)), answers_(answers) {}
  ~CallTransit() override;
  const std::shared_ptr<Line>& line() const { return line_; }
  /// Null: the call is in no context.
  const std::shared_ptr<Crossing>& crossing() const { return crossing_; }
  const std::optional<uint64_t>& answers() const { return answers_; }
  /// Of the arguments; null: they have nothing that is kept.
  std::shared_ptr<Passage> passage = {};

 private:
  const std::shared_ptr<Line> line_;
  const std::shared_ptr<Crossing> crossing_;
  const std::optional<uint64_t> answers_;
};

/// A context that a thread is in: what is called by it, or by what continues after a Future that
/// was made there, takes part in it, and so does what that calls. Threads: any.
class TRIREME_API CallContext {
 public:
  virtual ~CallContext();
  /// A call begins, on the caller's thread. Null: one to this worker takes no part.
  virtual std::shared_ptr<Crossing> leaving(const std::shared_ptr<Line>& to) = 0;
};

/// Hears of workers that are gone.
class TRIREME_API LineWatcher {
 public:
  virtual ~LineWatcher();
  /// The channel to a worker is closed: on any thread, which must not wait.
  virtual void lost(const Line& line) = 0;
};

/// What a worker has of contexts. Threads: any.
class TRIREME_API Carrier : public LineWatcher {
 public:
  ~Carrier() override;
  /// Of which worker it is: once, before anything else.
  virtual void joined(const std::string& name, int64_t member,
                      const std::shared_ptr<Executor>& executor) = 0;

  struct Arrived {
    std::shared_ptr<CallContext> context;  // its handler's
    std::shared_ptr<Crossing> crossing;
  };
  /// A call has come; whatever it throws is the answer.
  virtual Arrived arrived(const wire::Context& context, const std::shared_ptr<Line>& from) = 0;
};

/// The context that this thread is in; null: none.
TRIREME_API const std::shared_ptr<CallContext>& current_context();

class TRIREME_API ContextScope {
 public:
  explicit ContextScope(std::shared_ptr<CallContext> context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;

 private:
  std::shared_ptr<CallContext> before_;
};

}  // namespace trireme::rpc::detail
