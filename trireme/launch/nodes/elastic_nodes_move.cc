// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/launch/nodes/elastic_keys.h"
#include "trireme/launch/nodes/elastic_nodes_impl.h"
#include "trireme/launch/nodes/patience.h"
#include "trireme/launch/nodes/succession_run.h"
#include "trireme/net/address.h"
#include "trireme/rendezvous/job_ports.h"

// How a launcher of an elastic job comes from one store to another, keeps the job's, and leaves.

namespace trireme::launch {

void ElasticNodes::stand_by(const std::string& host) {
  server_ = serve_job(options_, credentials_, detail::listen_at_first_free(host, {0, 0}));
  us_.address = net::Address{host, server_->endpoints().at(0).address.port}.text();
}

void ElasticNodes::lose_store(const Error& error) {
  if (last_.generation.number < 0) throw;  // it knows nobody else
  if (!lost_) log_warn("{}", store_is_lost(error.what()).sentence);
  lost_ = true;
  watch_.reset();
}

void ElasticNodes::look_for_a_reason_to_move() {
  const Standing own = standing_in(*table_);
  if (own.is == Standing::promised && own.to != keeper_ && own.to != us_.token) lost_ = true;
  if (!keeps_ && last_.generation.number >= 0 && store_->try_get(elastic::kKeeperLeaves))
    lost_ = true;
  if (generation_ >= 0) return;
  const auto moved = store_->try_get(elastic::kMoved);
  if (!moved) return;
  coordinator_.reset();
  check<ResourceError>(!store_->try_get(elastic::kNewest),
                       "the job's store is at {}, and this node has begun the job anew: it ends",
                       *moved);
  auto there = neighbours_.enter(*moved);
  check<PeerLost>(there != nullptr, "the job's store has moved to {}, which does not answer",
                  *moved);
  log_info("the job's store is at {} now", *moved);
  move_to(std::move(there), *moved);
  come();
}

void ElasticNodes::move_to(std::unique_ptr<Store> store, const std::string& address) {
  watch_.reset();
  coordinator_.reset();
  keeps_ = false;
  store_ = std::move(store);
  address_ = address;
  lost_ = said_ = false;
}

std::optional<Nodes::Begun> ElasticNodes::go_on_elsewhere(
    const std::function<bool()>& asked_to_stop) {
  watch_.reset();
  if (keeps_ && coordinator_) {  // it follows another, who has a majority
    coordinator_.reset();
    keeps_ = false;
  }
  SuccessionStart start{us_.token, last_, last_has_begun_, {}};
  start.patience.others = options_.shutdown_timeout + std::chrono::seconds(10);
  SuccessionEnd end = member_
                          ? succeed(start, *table_, neighbours_, yielded_, asked_to_stop)
                          : find_successor(start, neighbours_,
                                           Deadline::after(options_.join_timeout), asked_to_stop);
  switch (end.kind) {
    case SuccessionEnd::asked_to_stop:
      return std::nullopt;
    case SuccessionEnd::gave_up:
      server_->local_store()->compare_set(elastic::kJobOver, "", end.sentence);
      return job_is_over(end.sentence);
    case SuccessionEnd::keeps:
      keep_store(end.followers);
      return std::nullopt;
    case SuccessionEnd::follows:
      if (end.store->try_get(elastic::lost(us_.token))) us_.token = new_token();
      break;
    case SuccessionEnd::rejoins:
      us_.token = new_token();
      table_->set(elastic::kKeeperLeaves, "1");  // for who has come here to follow this launcher
      table_->set(elastic::kStanding, to_text(Standing{Standing::in, last_.generation.number,
                                                       last_.generation.keeper, "", end.address}));
      break;
  }
  log_info("the job's store is at {} now", end.address);
  move_to(std::move(end.store), end.address);
  keeper_ = end.keeper;
  come();
  return std::nullopt;
}

void ElasticNodes::keep_store(int followers) {
  std::vector<Generation> before{last_.generation};
  if (!last_has_begun_) before.insert(before.end(), last_.before.begin(), last_.before.end());
  log_info("this node keeps the job's store from now on, at {}", us_.address);
  move_to(server_->local_store(), us_.address);
  keeps_ = true;
  keeper_ = us_.token;
  store_->delete_key(elastic::kKeeperLeaves);
  agree();
  coordinate({us_.token, last_, std::move(before), followers});
  come();
  signpost_ = std::make_unique<Signpost>(options_, credentials_, us_.address);
}

void ElasticNodes::see_whose_job_it_is(Store& store) const {
  if (!publication_ || !keeps_ || !publication_->replaced()) return;
  const StopCause cause{node_,
                        fmt::format("etcd had lost the address of the job's store ({}), and "
                                    "another launcher has begun job '{}' anew",
                                    us_.host, options_.rdzv_id),
                        "", false, /*counts=*/false};
  store.compare_set(elastic::kJobOver, "", cause.sentence);
  if (generation_ >= 0) store.compare_set(elastic::over(generation_), "", to_text(cause));
}

StopCause ElasticNodes::store_is_lost(const std::string& why) const {
  return {node_,
          fmt::format("the launcher that keeps the job's store at {} is gone: {}", address_, why),
          "", /*may_restart=*/true, /*counts=*/false};
}

void ElasticNodes::leave() {
  watch_.reset();
  publication_.reset();
  signpost_.reset();
  coordinator_.reset();
  Standing own = standing_in(*table_);
  own.is = Standing::left;
  table_->set(elastic::kStanding, to_text(own));
  if (abandoned_ || lost_) return;
  store_->set_answer_limit(patience::kStoreAnswers);
  if (!keeps_) {
    store_->set(leaving_ ? elastic::gone(us_.token) : elastic::lost(us_.token), "1");
    return;
  }
  const StopCause cause{node_,
                        fmt::format("the node that keeps the job's store ({}) ended", us_.host), "",
                        true, /*counts=*/false};
  if (generation_ >= 0 && !ended_)
    store_->compare_set(elastic::over(generation_), "", to_text(cause));
  if (generation_ < 0) store_->compare_set(elastic::kJobOver, "", cause.sentence);
  if (!store_->try_get(elastic::kJobOver)) store_->set(elastic::kKeeperLeaves, "1");
  server_->stop_listening();
  server_->wait_until_clients_left(Deadline::after(patience::kOthersLeave));
}

}  // namespace trireme::launch
