// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/wrappers/tuned_backend.h"

#include <algorithm>
#include <deque>

#include "trireme/base/check.h"
#include "trireme/comm/hybrid/hosts.h"
#include "trireme/comm/plan_run.h"
#include "trireme/comm/wrappers/forwarding_backend.h"
#include "trireme/comm/wrappers/moving_calls.h"
#include "trireme/store/store.h"

namespace trireme::detail {
namespace {

constexpr uint8_t kPlanned = 0x3f;  // kind of a token: a call of this class, not of the backend
constexpr int kPlanTag = -3;        // users' tags are not negative

class TunedBackend final : public ForwardingBackend {
 public:
  TunedBackend(std::shared_ptr<Backend> inner, TuningTable table, std::vector<int> hosts)
      : ForwardingBackend(std::move(inner)), table_(std::move(table)) {
    allowed_ = [name = this->name(), hosts](Algorithm a) { return may_serve(a, name, hosts); };
    options_.hosts = std::move(hosts);
    options_.tag = kPlanTag;
  }
  ~TunedBackend() override {
    if (progress_group()) progress_group()->leave(this);
  }

  Token post(const Call& call) override {
    if (call.op != Collective::all_reduce) return inner_->post(call);
    const at::Tensor& t = *call.input;
    const auto fastest = table_.choose("all_reduce", size(), t.nbytes(), allowed_);
    const bool fits =
        t.numel() && inner_->supports(Collective::send, t.scalar_type(), t.device().type());
    if (!fits || fastest.value_or(Algorithm::direct) == Algorithm::direct)
      return inner_->post(call);
    calls_move_.rethrow();
    calls_.push_back({++number_,
                      std::make_unique<PlannedAllReduce>(*inner_, t, call.reduction, *fastest,
                                                         options_, call.site),
                      {}});
    advance();
    return number_ <= complete_ ? Token{} : Token{number_, -1, kPlanned};
  }

  void join(std::shared_ptr<ProgressGroup> progress_group) override {
    progress_group->enter(this, [this] {
      if (calls_move_.failed() || calls_.empty()) return false;
      advance();
      return true;
    });
    ForwardingBackend::join(std::move(progress_group));
  }

  // The backend waits for its own calls itself: it knows which ranks are missing, and meanwhile
  // advances the progress_group.
  void wait(Token token, Duration timeout) override {
    if (token.kind != kPlanned) return inner_->wait(token, timeout);
    const Deadline deadline = Deadline::after(timeout);
    while (token.number > complete_) {
      calls_move_.move([&] { calls_.front().run->wait(*inner_, deadline.remaining()); });
      advance();
    }
  }
  bool completed(Token token) override {
    advance();
    return token.kind == kPlanned ? token.number <= complete_ : inner_->completed(token);
  }
  int source(Token token) override {
    check<UsageError>(token.kind != kPlanned, "source() was called on a call that is not a recv");
    return inner_->source(token);
  }
  void progress() override {
    advance();
    inner_->progress();
  }
  void when_complete(Token token, std::function<void()> done) override {
    if (token.kind != kPlanned) return inner_->when_complete(token, std::move(done));
    for (Planned& call : calls_)
      if (call.number == token.number) {
        call.done = std::move(done);
        return;
      }
    done();
  }

 private:
  struct Planned {
    uint64_t number;
    std::unique_ptr<PlannedAllReduce> run;
    std::function<void()> done;
  };

  // One after the other, because their messages share one tag.
  void advance() {
    if (calls_move_.moving()) return;  // one of them waits, and the progress_group calls this
    calls_move_.move([&] {
      while (!calls_.empty() && calls_.front().run->advance(*inner_)) {
        Planned call = std::move(calls_.front());
        calls_.pop_front();
        complete_ = call.number;
        if (call.done) call.done();
      }
    });
  }

  const TuningTable table_;
  std::function<bool(Algorithm)> allowed_;
  AlgorithmOptions options_;
  std::deque<Planned> calls_;
  uint64_t number_ = 0, complete_ = 0;
  MovingCalls calls_move_{MovingCalls::UsageErrors::end_all};
};

bool always_direct(const TuningTable& table, const Backend& backend,
                   const std::vector<int>& hosts) {
  const int ranks = backend.size();
  for (const auto& m : table.measurements())
    if (m.ranks == ranks && table.choose(m.op, ranks, m.bytes, [&](Algorithm a) {
          return may_serve(a, backend.name(), hosts);
        }) != Algorithm::direct)
      return false;
  return true;
}

}  // namespace

// The all_reduces of local and gloo add in the order of the tree. That of hybrid depends on the
// hosts, and that of MPI on the library.
bool may_serve(Algorithm algorithm, const std::string& backend, const std::vector<int>& hosts) {
  if (algorithm == Algorithm::direct) return true;
  return (backend == "local" || backend == "gloo") && keeps_order(algorithm, hosts);
}

std::shared_ptr<Backend> tuned_backend(std::shared_ptr<Backend> inner, const TuningTable& table,
                                       std::vector<int> hosts) {
  auto made = std::make_shared<TunedBackend>(std::move(inner), table, std::move(hosts));
  made->join(std::make_shared<ProgressGroup>());
  return made;
}

std::shared_ptr<Backend> tuned_by_cache(std::shared_ptr<Backend> inner,
                                        const std::shared_ptr<Store>& all) {
  const int rank = inner->rank(), size = inner->size();
  if (size == 1 || !all) return inner;
  const Deadline deadline = Deadline::after(inner->timeout());
  PrefixStore store(all, "tuning");
  // Most users have no measurements: they pay one look into the cache.
  if (rank == 0) store.set("any", TuningTable::any_in_cache() ? "yes" : "no");
  if (store.get("any", deadline) == "no") return inner;
  const std::vector<int> hosts = find_hosts(store, rank, size, deadline);
  // Publishes what rank 0 found, so that all ranks do the same.
  const std::string kNone = "-", kWrong = "!";
  if (rank == 0) {
    const auto here = static_cast<int>(std::count(hosts.begin(), hosts.end(), 0));
    std::string found = kNone;
    try {
      const auto table = TuningTable::load(HostShape::here(here, inner->name()));
      if (table && !always_direct(*table, *inner, hosts)) found = table->text();
    } catch (const std::exception& e) {
      found = kWrong + e.what();
    }
    store.set("table", found);
  }
  const std::string found = store.get("table", deadline);
  if (found == kNone) return inner;
  if (found.substr(0, 1) == kWrong) fail<UsageError>("rank 0's tuning table: {}", found.substr(1));
  return tuned_backend(std::move(inner), TuningTable::parse(found, "rank 0's tuning table"), hosts);
}

}  // namespace trireme::detail
