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
#include "trireme/launch/membership/announcement.h"
#include "trireme/launch/nodes/compare_nodes.h"
#include "trireme/launch/nodes/coordinator.h"
#include "trireme/launch/nodes/elastic_keys.h"
#include "trireme/launch/nodes/over_watch.h"
#include "trireme/launch/nodes/patience.h"
#include "trireme/net/address.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;

class ElasticNodes final : public Nodes {
 public:
  ElasticNodes(const RunOptions& options, Meeting meeting)
      : options_(options),
        server_(std::move(meeting.server)),
        store_(std::move(meeting.store)),
        address_(std::move(meeting.address)),
        own_address_(std::move(meeting.own_address)),
        publication_(std::move(meeting.publication)),
        us_{net::host_name() + " " + net::random_token(), net::host_name(),
            options.nproc_per_node} {
    agree_on_terms(*store_,
                   fmt::format("trireme members 1; version {}; --nnodes={}:{}; {}", version(),
                               options_.least_nodes, options_.nodes, restart_terms(options_)));
    if (server_) coordinator_ = std::make_unique<Coordinator>(server_->local_store(), options);
    store_->set_will(elastic::lost(us_.token), "1");
    if (!options_.facts.empty())
      store_->set(elastic::facts(us_.token),
                  encode(RankFacts{us_.host, 0, us_.workers, options_.facts, {}, {}}));
    const std::string text = to_text(us_);
    for (int64_t i = 1; store_->compare_set(elastic::came(i), "", text) != text;) ++i;
  }

  ~ElasticNodes() override {
    try {
      leave();
    } catch (const std::exception& error) {
      log_debug("left the other nodes without a word: {}", error.what());
    }
  }

  /// Until the first generation is there, or none will be. PeerLost: the store is gone before, or
  /// no longer the one where nodes come.
  void gather(const std::function<bool()>& asked_to_stop) {
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

  int node_rank() const override { return node_; }
  const std::vector<int>& workers_of_nodes() const override { return workers_; }
  std::string store_address() const override { return address_; }

  Begun begin(int, const std::function<bool()>& asked_to_stop) override {
    const Clock::time_point start = Clock::now();
    while (true) {
      watch_.reset();
      cause_.reset();
      see_whose_job_it_is(*store_);
      if (const auto how = store_->try_get(elastic::kJobOver)) return job_is_over(*how);
      if (asked_to_stop()) {
        leaves();
        return {"", 0, 0, 0, kExitFailed};
      }
      if (const auto announcement = next_generation())
        if (const auto begun = take_part(*announcement, asked_to_stop)) {
          said_ = false;
          return *begun;
        }
      say_that_it_waits(start);
    }
  }

  int fd() const override { return watch_->fd(); }

  std::optional<StopCause> stopped() override {
    if (!cause_ && watch_) note(watch_->value());
    return cause_;
  }

  StopCause stop(const StopCause& ours) override {
    // The others know why its workers end.
    if (leaving_ && !server_) return cause_.value_or(ours);
    try {
      note(store_->compare_set(elastic::over(generation_), "", to_text(ours)));
    } catch (const Error& error) {
      if (!cause_) cause_ = store_is_lost(error.what());
    }
    return cause_.value_or(ours);
  }

  bool come_and_go() const override { return true; }

  void leaves() override {
    if (std::exchange(leaving_, true)) return;
    try {
      StopCause cause{node_,
                      fmt::format("node {} ({}) was asked to stop and leaves", node_, us_.host), "",
                      true, /*counts=*/false};
      if (server_) {
        cause.sentence =
            fmt::format("the node that keeps the job's store ({}) was asked to stop", us_.host);
        cause.may_restart = false;
      }
      if (watch_ && !ended_)
        note(store_->compare_set(elastic::over(generation_), "", to_text(cause)));
      if (!server_) store_->set(elastic::leaves(us_.token), "1");
    } catch (const Error& error) {
      log_debug("the other nodes were not told that this one leaves: {}", error.what());
    }
  }

  std::optional<StopCause> why_peers_are_lost() override {
    wait_for_over(Deadline::after(patience::kLossIsSeen), {});
    return stopped();
  }

  std::optional<StopCause> finish(const End& here,
                                  const std::function<bool()>& asked_to_stop) override {
    ended_ = true;
    try {
      store_->set(elastic::ended(generation_, us_.token),
                  here.well ? elastic::kEndedWell : "not well");
      wait_for_over(here.well ? Deadline::never() : Deadline::after(patience::kFollow),
                    asked_to_stop);
      if (watch_->value().empty() && !leaving_) stop(here.otherwise);
      if (stopped() && (server_ || !leaving_)) wait_until_all_ended();
    } catch (const Error& error) {
      if (!cause_) cause_ = store_is_lost(error.what());
      cause_->may_restart = false;
    }
    return cause_;
  }

 private:
  void say_that_it_waits(Clock::time_point since) {
    if (said_ || Clock::now() - since <= patience::kSayAfter) return;
    said_ = true;
    log_info("this node waits for its turn, or for others to come, at {}", address_);
  }

  /// Within a moment, if there is one that this node has not seen.
  std::optional<Announcement> next_generation() {
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
    }
    return std::nullopt;
  }

  /// nullopt: it is not a member, or the generation is over already.
  std::optional<Begun> take_part(const Announcement& announcement,
                                 const std::function<bool()>& asked_to_stop) {
    const auto& members = announcement.generation.members;
    node_ = -1;
    workers_.clear();
    for (size_t i = 0; i < members.size(); ++i) {
      workers_.push_back(members[i].workers);
      if (members[i].token == us_.token) node_ = static_cast<int>(i);
    }
    if (node_ < 0) return std::nullopt;
    watch_ = std::make_unique<OverWatch>(
        server_ ? server_->local_store() : store_->clone(Deadline::after(patience::kBegin)),
        elastic::over(generation_),
        publication_
            ? std::function<void(Store&)>([this](Store& store) { see_whose_job_it_is(store); })
            : std::function<void(Store&)>(),
        [this](const std::string& why) { return to_text(store_is_lost(why)); });
    ended_ = false;
    Begun begun{"", 0, static_cast<int>(generation_), announcement.restarts};
    const std::string key = elastic::master(generation_);
    if (node_ == 0 && !are_alike(members)) {
      ended_ = true;
      store_->set(elastic::ended(generation_, us_.token), "not begun");
      return std::nullopt;
    }
    if (node_ == 0) {
      begun.master_address = own_address_;
      begun.master_port = free_port(options_.master_port);
      store_->set(key, fmt::format("{} {}", begun.master_port, begun.master_address));
      return begun;
    }
    const Deadline deadline = Deadline::after(patience::kBegin);
    while (watch_->value().empty() && !asked_to_stop()) {
      if (deadline.expired())
        stop({node_, fmt::format("node 0 ({}) did not begin", members[0].host), "", true});
      try {
        std::istringstream in(store_->get(key, Deadline::after(patience::kSlice)));
        in >> begun.master_port >> begun.master_address;
        return begun;
      } catch (const Timeout&) {  // its first node may be gone
      }
    }
    ended_ = true;
    store_->set(elastic::ended(generation_, us_.token), "not begun");
    return std::nullopt;
  }

  /// By the first of the members. Their clocks are not compared: nobody waits for one that may be
  /// gone.
  bool are_alike(const std::vector<Member>& members) {
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

  /// Also by the watch's thread. Two launchers that each keep a store of one name would be two
  /// jobs.
  void see_whose_job_it_is(Store& store) const {
    if (!publication_ || !publication_->replaced()) return;
    const StopCause cause{node_,
                          fmt::format("etcd had lost the address of the job's store ({}), and "
                                      "another launcher has begun job '{}' anew",
                                      us_.host, options_.rdzv_id),
                          "", false, /*counts=*/false};
    store.compare_set(elastic::kJobOver, "", cause.sentence);
    if (generation_ >= 0) store.compare_set(elastic::over(generation_), "", to_text(cause));
  }

  Begun job_is_over(const std::string& how) const {
    if (how == elastic::kAllDone) {
      log_info("the job is done");
      return {"", 0, 0, 0, kExitDone};
    }
    log_error("{}: the job ends", how);
    return {"", 0, 0, 0, kExitFailed};
  }

  void wait_for_over(Deadline deadline, const std::function<bool()>& asked_to_stop) {
    while (watch_->value().empty() && !deadline.expired()) {
      pollfd fds[] = {{watch_->fd(), POLLIN, 0}};
      ::poll(fds, 1, deadline.poll_ms(static_cast<int>(patience::kSlice / milliseconds(1))));
      if (asked_to_stop && asked_to_stop()) return leaves();
    }
  }

  StopCause store_is_lost(const std::string& why) const {
    return {node_,
            fmt::format("the launcher that keeps the job's store at {} is gone: {}", address_, why),
            "", false};
  }

  void note(const std::string& over) {
    if (cause_ || over.empty() || over == elastic::kAllDone) return;
    cause_ = read_stop_cause(over);
  }

  void wait_until_all_ended() {
    try {
      store_->get(elastic::all_ended(generation_),
                  Deadline::after(options_.shutdown_timeout + patience::kAllStop));
    } catch (const Timeout&) {
      log_warn(
          "the workers of some nodes did not end within {:.0f} s",
          std::chrono::duration<double>(options_.shutdown_timeout + patience::kAllStop).count());
      cause_->may_restart = false;
    }
  }

  void leave() {
    watch_.reset();
    publication_.reset();
    coordinator_.reset();
    if (abandoned_) return;
    store_->set_answer_limit(patience::kStoreAnswers);
    if (!server_) {
      store_->set(leaving_ ? elastic::gone(us_.token) : elastic::lost(us_.token), "1");
      return;
    }
    const StopCause cause{node_,
                          fmt::format("the node that keeps the job's store ({}) ended", us_.host),
                          "", false, /*counts=*/false};
    store_->compare_set(elastic::kJobOver, "", cause.sentence);
    if (generation_ >= 0 && !ended_)
      store_->compare_set(elastic::over(generation_), "", to_text(cause));
    server_->stop_listening();
    server_->wait_until_clients_left(Deadline::after(patience::kOthersLeave));
  }

  const RunOptions& options_;
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<Store> store_;
  const std::string address_, own_address_;
  std::unique_ptr<EtcdPublication> publication_;
  const Member us_;
  std::unique_ptr<Coordinator> coordinator_;
  int64_t generation_ = -1;  // the newest that this node has seen
  int node_ = 0;
  std::vector<int> workers_;
  std::vector<std::string> differences_;  // of the members, as they were said
  bool said_ = false;                     // that it waits
  bool abandoned_ = false;                // those that had come here meet elsewhere
  bool leaving_ = false;
  bool ended_ = true;  // this node's workers of the generation
  std::optional<StopCause> cause_;
  std::unique_ptr<OverWatch> watch_;
};

}  // namespace

std::unique_ptr<Nodes> elastic_nodes(const RunOptions& options, Meeting meeting,
                                     const std::function<bool()>& asked_to_stop) {
  auto nodes = std::make_unique<ElasticNodes>(options, std::move(meeting));
  if (options.rdzv_backend == "etcd") nodes->gather(asked_to_stop);
  return nodes;
}

}  // namespace trireme::launch
