// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/elastic_nodes.h"

#include <poll.h>

#include <sstream>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/version.h"
#include "trireme/launch/flags/text.h"
#include "trireme/launch/free_port.h"
#include "trireme/launch/nodes/compare_nodes.h"
#include "trireme/launch/nodes/elastic_keys.h"
#include "trireme/launch/nodes/elastic_nodes_impl.h"
#include "trireme/launch/nodes/patience.h"
#include "trireme/net/address.h"

namespace trireme::launch {

ElasticNodes::ElasticNodes(const RunOptions& options, Meeting meeting)
    : options_(options),
      credentials_(meeting.credentials),
      door_(door_of(meeting)),
      keeps_(meeting.server != nullptr),
      server_(std::move(meeting.server)),
      store_(std::move(meeting.store)),
      address_(std::move(meeting.address)),
      own_address_(std::move(meeting.own_address)),
      publication_(std::move(meeting.publication)),
      neighbours_(credentials_) {
  us_ = {new_token(), net::host_name(), options.nproc_per_node, address_};
  if (!server_) stand_by(meeting.local_host);
  table_ = server_->local_store();
  table_->set(elastic::kStanding, to_text(Standing{Standing::in, -1, "", "", address_}));
  if (keeps_) {
    agree();
    coordinate({us_.token, {}, {}, 0});
  }
  come();
}

ElasticNodes::~ElasticNodes() {
  try {
    leave();
  } catch (const std::exception& error) {
    log_debug("left the other nodes without a word: {}", error.what());
  }
}

void ElasticNodes::gather(const std::function<bool()>& asked_to_stop) {
  const Clock::time_point start = Clock::now();
  while (!asked_to_stop() && store_->missing({elastic::kNewest, elastic::kJobOver}).size() == 2) {
    if (publication_ && publication_->replaced()) {
      abandoned_ = true;
      fail<PeerLost>("etcd had lost this launcher's address, and names another one");
    }
    say_that_it_waits(start);
    try {
      store_->get(elastic::announced(0), Deadline::after(patience::kSlice));
    } catch (const Timeout&) {
    }
  }
}

Nodes::Begun ElasticNodes::begin(int, const std::function<bool()>& asked_to_stop) {
  const Clock::time_point start = Clock::now();
  watch_.reset();
  cause_.reset();
  while (true) {
    try {
      if (asked_to_stop()) {
        leaves();
        return ended(kExitFailed);
      }
      if (lost_)
        if (const auto end = go_on_elsewhere(asked_to_stop)) return *end;
      if (asked_to_stop()) continue;
      see_whose_job_it_is(*store_);
      if (const auto how = store_->try_get(elastic::kJobOver)) return job_is_over(*how);
      look_for_a_reason_to_move();
      if (lost_) continue;
      if (const auto announcement = next_generation())
        if (const auto begun = take_part(*announcement, asked_to_stop)) {
          said_ = false;
          return *begun;
        }
      watch_.reset();
      cause_.reset();
      say_that_it_waits(start);
    } catch (const PeerLost& error) {
      lose_store(error);
    } catch (const Timeout& error) {
      lose_store(error);
    }
  }
}

std::unique_ptr<Store> ElasticNodes::job_store() {
  return keeps_ ? server_->local_store() : store_->clone(Deadline::after(patience::kOthersLeave));
}

std::unique_ptr<Store> ElasticNodes::own_table() {
  return table_on(*store_, elastic::memory(generation_));
}

std::optional<StopCause> ElasticNodes::stopped() {
  if (!cause_ && watch_) note(watch_->value());
  return cause_;
}

StopCause ElasticNodes::stop(const StopCause& ours) {
  // The others know why its workers end.
  if (leaving_ && !keeps_) return cause_.value_or(ours);
  try {
    note(store_->compare_set(elastic::over(generation_), "", to_text(ours)));
  } catch (const Error& error) {
    if (!cause_) cause_ = store_is_lost(error.what());
  }
  return cause_.value_or(ours);
}

void ElasticNodes::leaves() {
  if (std::exchange(leaving_, true)) return;
  try {
    const StopCause cause{node_,
                          fmt::format("node {} ({}) was asked to stop and leaves", node_, us_.host),
                          "", true, /*counts=*/false};
    if (coordinator_) coordinator_->retire();
    if (watch_ && !ended_)
      note(store_->compare_set(elastic::over(generation_), "", to_text(cause)));
    store_->set(elastic::leaves(us_.token), "1");
  } catch (const Error& error) {
    log_debug("the other nodes were not told that this one leaves: {}", error.what());
  }
}

std::optional<StopCause> ElasticNodes::why_peers_are_lost() {
  wait_for_over(Deadline::after(patience::kLossIsSeen), {});
  return stopped();
}

std::optional<StopCause> ElasticNodes::finish(const End& here,
                                              const std::function<bool()>& asked_to_stop) {
  ended_ = true;
  try {
    store_->set(elastic::ended(generation_, us_.token),
                here.well ? elastic::kEndedWell : "not well");
    wait_for_over(here.well ? Deadline::never() : Deadline::after(patience::kFollow),
                  asked_to_stop);
    if (watch_->value().empty() && !leaving_) stop(here.otherwise);
    if (stopped() && !lost_ && (keeps_ || !leaving_)) wait_until_all_ended();
  } catch (const Error& error) {
    lost_ = true;
    if (!stopped()) cause_ = store_is_lost(error.what());
  }
  return cause_;
}

Nodes::Begun ElasticNodes::ended(int exit_code) {
  Begun begun;
  begun.exit_code = exit_code;
  return begun;
}

std::string ElasticNodes::new_token() { return net::host_name() + " " + net::random_token(); }

void ElasticNodes::agree() {
  agree_on_terms(*store_,
                 fmt::format("trireme members 3; version {}; --nnodes={}:{}; {}; {}", version(),
                             options_.least_nodes, options_.nodes, restart_terms(options_),
                             options_.claims.empty() ? "no shared file" : "a shared file"));
}

void ElasticNodes::come() {
  agree();
  store_->set_will(elastic::lost(us_.token), "1");
  const std::string text = to_text(us_);
  if (!options_.facts.empty())
    store_->set(elastic::facts(us_.token),
                encode(RankFacts{us_.host, 0, us_.workers, options_.facts, {}, {}}));
  for (int64_t i = 1; store_->compare_set(elastic::came(i), "", text) != text;) ++i;
}

void ElasticNodes::coordinate(CoordinatorStart start) {
  coordinator_ = std::make_unique<Coordinator>(server_->local_store(), options_, credentials_,
                                               std::move(start));
}

void ElasticNodes::say_that_it_waits(Clock::time_point since) {
  if (said_ || Clock::now() - since <= patience::kSayAfter) return;
  said_ = true;
  log_info("this node waits for its turn, or for others to come, at {}", address_);
}

std::optional<Announcement> ElasticNodes::next_generation() {
  const auto newest = store_->try_get(elastic::kNewest);
  const int64_t n = parse_int(newest.value_or("")).value_or(-1);
  if (n > generation_) {
    generation_ = n;
    return read_announcement(
        store_->get(elastic::announced(n), Deadline::after(patience::kStoreAnswers)));
  }
  try {
    store_->get(elastic::announced(generation_ + 1), Deadline::after(patience::kSlice));
  } catch (const Timeout&) {
    store_->try_get(elastic::kNewest);  // a store that does not answer says so
  }
  return std::nullopt;
}

std::optional<Nodes::Begun> ElasticNodes::take_part(const Announcement& announcement,
                                                    const std::function<bool()>& asked_to_stop) {
  const auto& members = announcement.generation.members;
  node_ = -1;
  workers_.clear();
  for (size_t i = 0; i < members.size(); ++i) {
    workers_.push_back(members[i].workers);
    if (members[i].token == us_.token) node_ = static_cast<int>(i);
  }
  if (node_ < 0) {
    if (!member_) last_ = announcement;
    return std::nullopt;
  }
  watch_ = std::make_unique<OverWatch>(
      job_store(), elastic::over(generation_),
      publication_
          ? std::function<void(Store&)>([this](Store& store) { see_whose_job_it_is(store); })
          : std::function<void(Store&)>(),
      [this](const std::string& why) {
        lost_ = true;
        return to_text(store_is_lost(why));
      });
  if (!accept(announcement)) return std::nullopt;
  ended_ = false;
  Begun begun{"", 0, static_cast<int>(generation_), announcement.restarts};
  begun.claims = options_.claims;
  begun.claim = announcement.claims_from + generation_;
  const std::string key = elastic::master(generation_);
  if (wait_for(elastic::begun(generation_), asked_to_stop)) {
    last_has_begun_ = true;
    if (node_ == 0 && are_alike(members)) {
      begun.master_address = own_address_;
      begun.master_port = free_port(options_.master_port);
      store_->set(key, fmt::format("{} {}", begun.master_port, begun.master_address));
      return begun;
    }
    const Deadline deadline = Deadline::after(patience::kBegin);
    if (const auto master = wait_for(key, asked_to_stop, deadline)) {
      std::istringstream in(*master);
      in >> begun.master_port >> begun.master_address;
      return begun;
    }
    if (deadline.expired())
      stop({node_, fmt::format("node 0 ({}) did not begin", members[0].host), "", true});
  }
  ended_ = true;
  if (!lost_) store_->set(elastic::ended(generation_, us_.token), "not begun");
  return std::nullopt;
}

bool ElasticNodes::are_alike(const std::vector<Member>& members) {
  std::vector<RankFacts> all;
  int first_rank = 0;
  for (const Member& member : members) {
    const auto facts = store_->try_get(elastic::facts(member.token));
    if (facts) all.push_back(decode<RankFacts>(*facts));
    if (facts) all.back().first_rank = first_rank;
    first_rank += member.workers;
  }
  if (all.size() < 2) return true;
  const FactTable table = compare_facts(all);
  if (std::exchange(differences_, table.lines) != table.lines) say_differences(table);
  if (!table.refusal.empty()) stop({node_, table.refusal, "", false});
  return table.refusal.empty();
}

bool ElasticNodes::accept(const Announcement& announcement) {
  const Generation& g = announcement.generation;
  const std::string text = to_text(Standing{Standing::in, g.number, g.keeper, "", address_});
  while (true) {
    const Standing own = standing_in(*table_);
    if (own.is == Standing::promised && own.to != g.keeper) {
      lost_ = true;
      return false;
    }
    if (table_->compare_set(elastic::kStanding, to_text(own), text) == text) break;
  }
  keeper_ = g.keeper;
  last_ = announcement;
  member_ = true;
  last_has_begun_ = yielded_ = false;
  store_->set(elastic::accepted(g.number, us_.token), "1");
  return true;
}

std::optional<std::string> ElasticNodes::wait_for(const std::string& key,
                                                  const std::function<bool()>& asked_to_stop,
                                                  Deadline deadline) {
  while (watch_->value().empty() && !asked_to_stop() && !deadline.expired()) try {
      return store_->get(key, Deadline::after(patience::kSlice));
    } catch (const Timeout&) {
      store_->try_get(elastic::kNewest);
    }
  return std::nullopt;
}

Nodes::Begun ElasticNodes::job_is_over(const std::string& how) const {
  if (how == elastic::kAllDone) {
    log_info("the job is done");
    return ended(kExitDone);
  }
  log_error("{}: the job ends", how);
  return ended(kExitFailed);
}

void ElasticNodes::wait_for_over(Deadline deadline, const std::function<bool()>& asked_to_stop) {
  while (watch_->value().empty() && !deadline.expired()) {
    pollfd fds[] = {{watch_->fd(), POLLIN, 0}};
    ::poll(fds, 1,
           deadline.poll_ms(static_cast<int>(patience::kSlice / std::chrono::milliseconds(1))));
    if (asked_to_stop && asked_to_stop()) return leaves();
  }
}

void ElasticNodes::note(const std::string& over) {
  if (cause_ || over.empty() || over == elastic::kAllDone) return;
  cause_ = read_stop_cause(over);
}

void ElasticNodes::wait_until_all_ended() {
  try {
    store_->get(elastic::all_ended(generation_),
                Deadline::after(options_.shutdown_timeout + patience::kAllStop));
  } catch (const Timeout&) {
    log_warn("the workers of some nodes did not end within {:.0f} s",
             std::chrono::duration<double>(options_.shutdown_timeout + patience::kAllStop).count());
    cause_->may_restart = false;
  }
}

std::unique_ptr<Nodes> elastic_nodes(const RunOptions& options, Meeting meeting,
                                     const std::function<bool()>& asked_to_stop) {
  auto nodes = std::make_unique<ElasticNodes>(options, std::move(meeting));
  if (options.rdzv_backend == "etcd") nodes->gather(asked_to_stop);
  return nodes;
}

}  // namespace trireme::launch
