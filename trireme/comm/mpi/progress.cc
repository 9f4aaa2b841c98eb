// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include "trireme/base/check.h"
#include "trireme/comm/mpi/mpi_backend.h"

// Waits for calls, and handles failed groups. MPI has no wait with a deadline and does not say
// which rank is missing, so the ranks ask each other.
namespace trireme::detail {
namespace {

constexpr auto kListenEvery = std::chrono::milliseconds(20);
constexpr auto kStall = std::chrono::seconds(1);  // after which a wait is examined
constexpr auto kLookEvery = std::chrono::milliseconds(200);
/// A waiting rank answers within kListenEvery, unless its CPU is busy.
constexpr auto kAnswerWithin = std::chrono::milliseconds(500);

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

std::string list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < 64; ++i)
    text += (i ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > 64) text += fmt::format(" and {} more", ranks.size() - 64);
  return text;
}

MpiReport::Kind kind_of(AbortKind kind) {
  return kind == AbortKind::timeout    ? MpiReport::timeout
         : kind == AbortKind::mismatch ? MpiReport::mismatch
                                       : MpiReport::failed;
}

}  // namespace

std::string MpiBackend::text_of(const What& call) const {
  std::string text = name_of(call.op);
  if (call.sequence) text += fmt::format(" #{}", call.sequence);
  if (call.op == Collective::send) text += fmt::format(" to rank {}", call.peer);
  if (call.op == Collective::recv)
    text += call.peer < 0 ? " from any rank" : fmt::format(" from rank {}", call.peer);
  if (call.op != Collective::barrier)
    text += fmt::format(" ({} × {})", c10::toString(call.dtype), call.count);
  return text + fmt::format(" at {}:{}", call.site.file, call.site.line);
}

void MpiBackend::check_usable() const {
  if (failure_) rethrow();
}

void MpiBackend::rethrow() const {
  const ErrorContext context{rank(), failure_->peer, "", -1};
  switch (failure_->kind) {
    case MpiReport::timeout:
      throw Timeout(failure_->text, context);
    case MpiReport::mismatch:
      throw Mismatch(failure_->text, context);
    default:
      if (failure_->peer >= 0) throw PeerLost(failure_->text, context);
      throw Aborted(failure_->text, context);
  }
}

void MpiBackend::give_up(MpiReport::Kind kind, const std::string& text) {
  failure_ = Failure{kind, -1, text};
  MpiReport report;
  report.kind = kind;
  report.say(text);
  reports_.send(report);
  rethrow();
}

void MpiBackend::give_up(const What& call, int code) {
  const auto problem = comm_->problem(code);
  const std::string where = fmt::format("rank {}: {}", rank(), text_of(call));
  switch (problem.kind) {
    case kTriremeMpiTruncated:
      give_up(MpiReport::mismatch,
              where +
                  ": another rank sent more than this one asked for; the counts of both calls "
                  "must agree");
    case kTriremeMpiPeerLost:
      give_up(MpiReport::failed, fmt::format("{}: a rank was lost ({})", where, problem.text));
    case kTriremeMpiNoMemory:
      give_up(MpiReport::failed, where + ": MPI is out of memory");
    default:
      give_up(MpiReport::failed, fmt::format("{}: MPI failed: {}", where, problem.text));
  }
}

bool MpiBackend::advance(Pending& p) {
  while (!p.requests.empty()) {
    Request& r = p.requests.back();
    bool done = false;
    TriremeMpiStatus status{};
    if (const int code = comm_->api.test(&r.bits, &done, &status)) {
      p.requests.pop_back();
      give_up(p.call, code);
    }
    if (!done) return false;
    const bool wrong = r.expected >= 0 && status.bytes != r.expected;
    const int64_t expected = r.expected;
    p.requests.pop_back();
    if (expected >= 0) p.source = status.source;
    if (wrong)
      give_up(MpiReport::mismatch,
              fmt::format("rank {}: {}: rank {} sent {} bytes, this rank expects {}; the counts of "
                          "both calls must agree",
                          rank(), text_of(p.call), status.source, status.bytes, expected));
  }
  return true;
}

void MpiBackend::complete(Table::iterator at) {
  const uint64_t number = at->first;
  const auto p = std::move(at->second);
  pending_.erase(at);
  if (p->call.op == Collective::recv && p->call.peer < 0) {
    sources_[number] = p->source;
    constexpr size_t kSourcesKept = 65536;
    if (sources_.size() > kSourcesKept) sources_.erase(sources_.begin());
  }
  if (p->finish) p->finish();
  if (p->done) p->done();
}

void MpiBackend::wait(Token token, Duration timeout) {
  const auto at = pending_.find(token.number);
  if (at == pending_.end()) return;
  check_usable();
  Pending& p = *at->second;
  const auto start = Clock::now();
  const Deadline deadline = Deadline::after(timeout);
  auto next_look = start + kStall;
  for (int round = 0; !advance(p); ++round) {
    if (round < 64) continue;
    if (progress_group()) {
      progress_group()->progress_others(this);
      check_usable();
    }
    ::sched_yield();
    if (round % 8) continue;
    const auto now = Clock::now();
    listen(&p, now - start);
    if (deadline.expired()) time_out(p.call, now - start);
    if (!look_ || now < next_look) continue;
    look_();
    next_look = Clock::now() + kLookEvery;
  }
  complete(at);
  progress();
}

bool MpiBackend::completed(Token token) {
  const auto at = pending_.find(token.number);
  if (at == pending_.end()) return true;
  check_usable();
  if (!advance(*at->second)) {
    listen(nullptr, {});
    return false;
  }
  complete(at);
  return true;
}

int MpiBackend::source(Token token) {
  check<UsageError>(!pending_.count(token.number), "source(): the recv is not complete yet");
  if (token.peer >= 0) return token.peer;
  const auto at = sources_.find(token.number);
  check<UsageError>(at != sources_.end(),
                    "source(): this was not a recv from any rank, or too many followed it");
  return at->second;
}

void MpiBackend::progress() {
  if (failure_) return;
  for (auto at = pending_.begin(); at != pending_.end();) {
    const auto here = at++;
    if (advance(*here->second)) complete(here);
  }
}

void MpiBackend::when_complete(Token token, std::function<void()> done) {
  const auto at = pending_.find(token.number);
  if (at == pending_.end())
    done();
  else
    at->second->done = std::move(done);
}

void MpiBackend::abort(const std::string& why, AbortKind kind) {
  if (failure_) return;
  try {
    give_up(kind_of(kind), why);
  } catch (const Error&) {  // reported to later calls on the group
  }
}

void MpiBackend::listen(const Pending* waiting, Duration waited) {
  const auto now = Clock::now();
  if (now < next_listen_) return;
  next_listen_ = now + kListenEvery;
  while (auto got = reports_.next()) {
    auto& [from, report] = *got;
    if (report.kind != MpiReport::waiting) {
      failure_ = Failure{report.kind, from,
                         report.kind == MpiReport::failed
                             ? fmt::format("rank {} gave up: {}", from, report.text)
                             : std::string(report.text)};
      rethrow();
    }
    heard_[from] = report;
    if (waiting) continue;
    failure_ = Failure{MpiReport::timeout, from,
                       fmt::format("rank {} waited in vain: {}; rank {} was in no call of group "
                                   "'{}'",
                                   from, report.text, rank(), identity.name)};
    rethrow();
  }
  if (!heard_.empty() && waiting) time_out(waiting->call, waited);
}

void MpiBackend::time_out(const What& call, Duration waited) {
  MpiReport mine;
  mine.op = static_cast<uint8_t>(call.op);
  mine.sequence = call.sequence;
  mine.say(text_of(call));
  reports_.send(mine);
  std::vector<int> asked;
  for (int r = 0; r < size(); ++r)
    if (r != rank() && (call.sequence || call.peer < 0 || call.peer == r)) asked.push_back(r);
  const auto silent = [&] {
    std::vector<int> ranks;
    for (int r : asked)
      if (!heard_.count(r)) ranks.push_back(r);
    return ranks;
  };
  for (const Deadline until = Deadline::after(kAnswerWithin); !until.expired() && !silent().empty();
       ::sched_yield())
    if (const auto got = reports_.next()) {
      const auto& [from, report] = *got;
      if (report.kind == MpiReport::waiting) {
        heard_[from] = report;
        continue;
      }
      failure_ = Failure{report.kind, from, report.text};
      rethrow();
    }

  std::string elsewhere;
  for (const auto& [r, report] : heard_) {
    if (report.sequence == call.sequence && report.op == mine.op) continue;
    // A different call at the same place in the order: the program is wrong.
    if (call.sequence && report.sequence == call.sequence) {
      failure_ = Failure{MpiReport::mismatch, r,
                         fmt::format("group '{}': rank {} called {}, rank {} called {}: every rank "
                                     "must make the same calls in the same order",
                                     identity.name, rank(), mine.text, r, report.text)};
      rethrow();
    }
    elsewhere += fmt::format("; rank {} waits in {}", r, report.text);
  }
  const std::vector<int> missing = silent();
  std::string who = elsewhere;
  if (!missing.empty()) who = fmt::format(": {} did not come{}", list(missing), elsewhere);
  if (who.empty()) who = "; all ranks are in it, and MPI makes no progress";
  failure_ = Failure{MpiReport::timeout, -1,
                     fmt::format("group '{}': rank {} waited {:.3g} s in {}{}", identity.name,
                                 rank(), seconds(waited), mine.text, who)};
  rethrow();
}

}  // namespace trireme::detail
