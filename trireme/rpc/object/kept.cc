// SPDX-License-Identifier: Apache-2.0
// Objects of this worker: how they are made, found and called.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/rpc/agent/crew.h"
#include "trireme/rpc/object/books.h"
#include "trireme/rpc/object/messages.h"
#include "trireme/rpc/object/objects.h"
#include "trireme/rpc/object/remote_class.h"

namespace trireme::rpc::detail {
namespace {

std::shared_ptr<Objects> objects_of(const Answering& call) {
  auto objects = call.line()->objects();
  check<Aborted>(objects != nullptr, "the worker has shut down");
  return objects;
}

// A handler of these functions, whatever it throws is answered.
template <class F>
std::function<void(const std::shared_ptr<Answering>&)> answering(F f) {
  return [f](const std::shared_ptr<Answering>& call) {
    try {
      f(call);
    } catch (...) {
      call->fail(std::current_exception());
    }
  };
}

template <class M, class F>
Method method(F f) {
  return {M::kName, signature_of<M>(), answering([f](const std::shared_ptr<Answering>& call) {
            ValuesOf<M> values;
            auto reader = call->arguments();
            std::apply([&](auto&... value) { (reader.get(value), ...); }, values);
            if (!reader.done()) encoding::left_over();
            auto result = call->result();
            std::apply([&](auto&... value) { f(*call, result, value...); }, values);
            call->reply(std::move(result));
          })};
}

}  // namespace

std::vector<Method> Objects::methods() {
  const std::weak_ptr<Objects> weak = weak_from_this();
  const auto with_books = [](Answering& call, auto use) {
    const auto objects = objects_of(call);
    std::unique_lock lock(objects->mutex_);
    use(*objects);
    objects->act(lock);
  };
  std::vector<Method> methods;
  methods.push_back(method<ClaimObject>(
      [with_books](Answering& call, encoding::Writer&, const ObjectId& object, uint64_t life) {
        with_books(call, [&](Objects& at) {
          check<UsageError>(!at.left_ && at.ledger_.claimed(object, call.line()->link(), life),
                            "worker '{}' has freed the object, or never had it", at.worker_);
          if (!at.stored_.contains(object))
            at.stored_[object] = std::make_shared<Kept>(Kept{.object = object});
        });
      }));
  methods.push_back(method<ReleaseObject>([with_books](Answering& call, encoding::Writer&,
                                                       const ObjectId& object, uint64_t life) {
    with_books(call, [&](Objects& at) { at.ledger_.released(object, call.line()->link(), life); });
  }));
  methods.push_back(
      method<SettleReference>([with_books](Answering& call, encoding::Writer&, uint64_t token) {
        with_books(call, [&](Objects& at) { at.ledger_.settled(call.line()->link(), token); });
      }));
  methods.push_back(
      method<WithdrawReferences>([with_books](Answering& call, encoding::Writer& result,
                                              const std::vector<uint64_t>& tokens, bool may_run) {
        with_books(call, [&](Objects& at) {
          result.put(at.ledger_.withdraw(call.line()->link(), tokens, may_run));
        });
      }));
  methods.push_back(
      {kMakeByFunction, raw_signature(), answering([](const std::shared_ptr<Answering>& call) {
         objects_of(*call)->make_by_function(call);
       })});
  methods.push_back({kFetch, raw_signature(), answering([](const std::shared_ptr<Answering>& call) {
                       objects_of(*call)->fetch(call);
                     })});
  return methods;
}

Method method_that_makes(const std::string& name, const std::string& signature,
                         const std::string& kind, MakeObject make) {
  return {name, signature,
          answering([kind, make = std::move(make)](const std::shared_ptr<Answering>& call) {
            objects_of(*call)->make(call, kind, make);
          })};
}

Method method_on_objects(const std::string& name, const std::string& signature,
                         const std::string& kind, RunOnObject run) {
  return {name, signature,
          answering([kind, run = std::move(run)](const std::shared_ptr<Answering>& call) {
            objects_of(*call)->run(call, kind, run);
          })};
}

std::shared_ptr<Kept> Objects::announce(const std::shared_ptr<Answering>& call,
                                        const ObjectId& object, uint64_t life,
                                        const std::string& where) {
  std::lock_guard lock(mutex_);
  check<Aborted>(!left_, "worker '{}' has shut down", worker_);
  check<UsageError>(ledger_.make_for(object, call->line()->link(), life),
                    "worker '{}' was to make an object that was made before, or given up", worker_);
  auto& stored = stored_[object];
  if (!stored) stored = std::make_shared<Kept>(Kept{.object = object});
  stored->where = where.substr(0, kMostWhere);
  return stored;
}

// What waits for it goes on. Under the lock.
void Objects::keep(const std::shared_ptr<Kept>& stored, std::shared_ptr<void> value,
                   std::function<void(encoding::Writer&)> put, const std::exception_ptr& error) {
  if (stored->progress == Progress::coming) {
    stored->progress = error ? Progress::failed : Progress::there;
    stored->value = std::move(value);
    stored->put = std::move(put);
    if (error) stored->error = described(error, worker_);
  }
  for (auto& waiting : std::exchange(stored->waiting, {})) post(std::move(waiting));
}

void Objects::make(const std::shared_ptr<Answering>& call, const std::string& kind,
                   const MakeObject& make) {
  auto reader = call->arguments();
  MakerHead head;
  reader.get(head);
  const auto stored = announce(call, head.object, head.life, head.where);
  std::shared_ptr<void> value;
  std::exception_ptr error;
  try {
    value = make(std::move(reader));
  } catch (...) {
    error = std::current_exception();
  }
  {
    std::lock_guard lock(mutex_);
    stored->kind = kind;
    keep(stored, value, {}, error);
  }
  if (error)
    call->fail(std::move(error));
  else
    call->reply(call->result());
}

/// Makes an object of what a function returns.
class KeptKeeper final : public Keeper {
 public:
  KeptKeeper(std::shared_ptr<Objects> at, std::shared_ptr<Kept> stored,
             std::shared_ptr<Answering> call)
      : at_(std::move(at)), stored_(std::move(stored)), call_(std::move(call)) {}
  void keep(std::shared_ptr<void> value, std::string type,
            std::function<void(encoding::Writer&)> put) override {
    {
      std::lock_guard lock(at_->mutex_);
      stored_->kind = std::move(type);
      at_->keep(stored_, std::move(value), std::move(put), nullptr);
    }
    call_->reply(call_->result());
  }
  void fail(std::exception_ptr error) override {
    {
      std::lock_guard lock(at_->mutex_);
      at_->keep(stored_, nullptr, {}, error);
    }
    call_->fail(std::move(error));
  }

 private:
  const std::shared_ptr<Objects> at_;
  const std::shared_ptr<Kept> stored_;
  const std::shared_ptr<Answering> call_;
};

void Objects::make_by_function(const std::shared_ptr<Answering>& call) {
  auto reader = call->arguments();
  MakerHead head;
  std::string name, signature;
  reader.get(head);
  reader.get(name);
  reader.get(signature);
  const auto stored = announce(call, head.object, head.life, head.where);
  const auto keeper = std::make_shared<KeptKeeper>(shared_from_this(), stored, call);
  try {
    const auto found = std::find_if(methods_->begin(), methods_->end(),
                                    [&](const Method& method) { return method.name == name; });
    check<UsageError>(found != methods_->end() && found->run_and_keep,
                      "worker '{}' offers no function '{}' whose result it could keep: it must be "
                      "among the offers of its rpc::Options",
                      worker_, name);
    check<Mismatch>(found->signature == signature,
                    "'{}' is {} on worker '{}' and {} at its caller: use the same program "
                    "everywhere",
                    name, found->signature, worker_, signature);
    found->run_and_keep(call, std::move(reader), keeper);
  } catch (...) {
    keeper->fail(std::current_exception());
  }
}

void Objects::find(const ObjectId& object, const std::string& kind, Then then) {
  std::shared_ptr<Kept> stored;
  std::exception_ptr error;
  {
    std::lock_guard lock(mutex_);
    const auto found = stored_.find(object);
    if (found != stored_.end()) stored = found->second;
    if (stored && stored->progress == Progress::coming) {
      stored->waiting.push_back([this, self = shared_from_this(), object, kind,
                                 then = std::move(then), call = current_call(),
                                 context = current_context(), stored] {
        CallScope scope(call);
        ContextScope within(context);
        std::exception_ptr failed;
        {
          std::lock_guard lock(mutex_);
          if (stored->progress == Progress::failed) failed = again(stored->error, kind);
        }
        then(stored, std::move(failed));
      });
      return;
    }
    if (!stored)
      error = std::make_exception_ptr(UsageError(
          fmt::format("worker '{}' has no such {}: it is freed, or never was", worker_, kind)));
    else if (stored->progress == Progress::failed)
      error = again(stored->error, kind);
    else if (stored->kind != kind)
      error = std::make_exception_ptr(UsageError(fmt::format(
          "an object of worker '{}' is a {}, and was used as a {}", worker_, stored->kind, kind)));
  }
  then(stored, std::move(error));
}

void Objects::run(const std::shared_ptr<Answering>& call, const std::string& kind,
                  const RunOnObject& run) {
  auto reader = call->arguments();
  ObjectId object;
  reader.get(object);
  find(object, kind,
       [this, call, kind, run, reader = std::move(reader)](const std::shared_ptr<Kept>& stored,
                                                           std::exception_ptr error) {
         std::shared_ptr<void> value;
         if (!error) {
           std::lock_guard lock(mutex_);
           value = stored->value;
         }
         if (!error && (!value || stored->kind != kind))
           error = std::make_exception_ptr(UsageError(fmt::format(
               "worker '{}' has no such {}: it is freed, or of another class", worker_, kind)));
         if (error)
           call->fail(std::move(error));
         else
           run(value, call, reader);
       });
}

void Objects::fetch(const std::shared_ptr<Answering>& call) {
  auto reader = call->arguments();
  ObjectId object;
  std::string kind;
  reader.get(object);
  reader.get(kind);
  if (!reader.done()) encoding::left_over();
  find(object, kind,
       [this, call, kind](const std::shared_ptr<Kept>& stored, std::exception_ptr error) {
         std::function<void(encoding::Writer&)> put;
         if (!error) {
           std::lock_guard lock(mutex_);
           if (stored->kind == kind) put = stored->put;
         }
         if (!error && !put)
           error = std::make_exception_ptr(UsageError(fmt::format(
               "the {} of worker '{}' cannot be sent as one: call its methods", kind, worker_)));
         try {
           if (error) std::rethrow_exception(error);
           auto result = call->result();
           result.copy_shared();  // it stays the object's
           put(result);
           call->reply(std::move(result));
         } catch (...) {
           call->fail(std::current_exception());
         }
       });
}

void Objects::local(const Reference& reference, Deadline deadline,
                    const std::shared_ptr<FutureState<std::shared_ptr<void>>>& future) {
  fail_late(future, deadline,
            fmt::format("the {} was not there by the deadline of local_value()", reference.kind()));
  find(reference.object(), reference.kind(),
       [this, future](const std::shared_ptr<Kept>& stored, std::exception_ptr error) {
         if (error) {
           future->fail(std::move(error));
           return;
         }
         std::shared_ptr<void> value;
         {
           std::lock_guard lock(mutex_);
           value = stored->value;
         }
         future->set(std::move(value));
       });
}

}  // namespace trireme::rpc::detail
