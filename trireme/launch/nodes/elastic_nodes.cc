// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/elastic_nodes.h"

#include <poll.h>

#include <atomic>
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
#include "trireme/launch/nodes/neighbours.h"
#include "trireme/launch/nodes/over_watch.h"
#include "trireme/launch/nodes/patience.h"
#include "trireme/launch/nodes/signpost.h"
#include "trireme/launch/nodes/succession_run.h"
#include "trireme/net/address.h"
#include "trireme/rendezvous/job_ports.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;

/// A launcher has a store of its own from the beginning: where it stands is written there, and if
/// it is to keep the job's store one day, that is the one.
class ElasticNodes final : public Nodes {
 public:
  ElasticNodes(const RunOptions& options, Meeting meeting)
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

  std::optional<Door> door() const override { return door_; }
  std::unique_ptr<Store> own_table() override {
    return table_on(*store_, elastic::memory(generation_));
  }

  int fd() const override { return watch_->fd(); }

  std::optional<StopCause> stopped() override {
    if (!cause_ && watch_) note(watch_->value());
    return cause_;
  }

  StopCause stop(const StopCause& ours) override {
    // The others know why its workers end.
    if (leaving_ && !keeps_) return cause_.value_or(ours);
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
      const StopCause cause{
          node_, fmt::format("node {} ({}) was asked to stop and leaves", node_, us_.host), "",
          true, /*counts=*/false};
      if (coordinator_) coordinator_->retire();
      if (watch_ && !ended_)
        note(store_->compare_set(elastic::over(generation_), "", to_text(cause)));
      store_->set(elastic::leaves(us_.token), "1");
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
      if (stopped() && !lost_ && (keeps_ || !leaving_)) wait_until_all_ended();
    } catch (const Error& error) {
      lost_ = true;
      if (!stopped()) cause_ = store_is_lost(error.what());
    }
    return cause_;
  }

 private:
  static Begun ended(int exit_code) {
    Begun begun;
    begun.exit_code = exit_code;
    return begun;
  }
  static std::string new_token() { return net::host_name() + " " + net::random_token(); }

  void stand_by(const std::string& host) {
    server_ = serve_job(options_, credentials_, detail::listen_at_first_free(host, {0, 0}));
    us_.address = net::Address{host, server_->endpoints().at(0).address.port}.text();
  }

  void agree() {
    agree_on_terms(*store_,
                   fmt::format("trireme members 3; version {}; --nnodes={}:{}; {}; {}", version(),
                               options_.least_nodes, options_.nodes, restart_terms(options_),
                               options_.claims.empty() ? "no shared file" : "a shared file"));
  }

  /// To the store where the job is now.
  void come() {
    agree();
    store_->set_will(elastic::lost(us_.token), "1");
    const std::string text = to_text(us_);
    if (!options_.facts.empty())
      store_->set(elastic::facts(us_.token),
                  encode(RankFacts{us_.host, 0, us_.workers, options_.facts, {}, {}}));
    for (int64_t i = 1; store_->compare_set(elastic::came(i), "", text) != text;) ++i;
  }

  void coordinate(CoordinatorStart start) {
    coordinator_ = std::make_unique<Coordinator>(server_->local_store(), options_, credentials_,
                                                 std::move(start));
  }

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
      store_->try_get(elastic::kNewest);  // a store that does not answer says so
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
    if (node_ < 0) {
      if (!member_) last_ = announcement;
      return std::nullopt;
    }
    watch_ = std::make_unique<OverWatch>(
        keeps_ ? server_->local_store() : store_->clone(Deadline::after(patience::kOthersLeave)),
        elastic::over(generation_),
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

  /// False: it follows another launcher, and so leaves this store.
  bool accept(const Announcement& announcement) {
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

  /// nullopt: the generation is over before, or the deadline has passed, or asked to stop.
  std::optional<std::string> wait_for(const std::string& key,
                                      const std::function<bool()>& asked_to_stop,
                                      Deadline deadline = Deadline::never()) {
    while (watch_->value().empty() && !asked_to_stop() && !deadline.expired()) try {
        return store_->get(key, Deadline::after(patience::kSlice));
      } catch (const Timeout&) {
        store_->try_get(elastic::kNewest);
      }
    return std::nullopt;
  }

  void lose_store(const Error& error) {
    if (last_.generation.number < 0) throw;  // it knows nobody else
    if (!lost_) log_warn("{}", store_is_lost(error.what()).sentence);
    lost_ = true;
    watch_.reset();
  }

  /// The store is left in order, or this node has been asked to follow another, or it has opened a
  /// store at the endpoint of a job whose store is elsewhere.
  void look_for_a_reason_to_move() {
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

  void move_to(std::unique_ptr<Store> store, const std::string& address) {
    watch_.reset();
    coordinator_.reset();
    keeps_ = false;
    store_ = std::move(store);
    address_ = address;
    lost_ = said_ = false;
  }

  /// Begun: the launcher ends. nullopt: it has a store again, or has been asked to stop.
  std::optional<Begun> go_on_elsewhere(const std::function<bool()>& asked_to_stop) {
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
        table_->set(elastic::kStanding,
                    to_text(Standing{Standing::in, last_.generation.number, last_.generation.keeper,
                                     "", end.address}));
        break;
    }
    log_info("the job's store is at {} now", end.address);
    move_to(std::move(end.store), end.address);
    keeper_ = end.keeper;
    come();
    return std::nullopt;
  }

  void keep_store(int followers) {
    std::vector<Generation> before{last_.generation};
    if (!last_has_begun_) before.insert(before.end(), last_.before.begin(), last_.before.end());
    log_info("this node keeps the job's store from now on, at {}", us_.address);
    move_to(server_->local_store(), us_.address);
    keeps_ = true;
    keeper_ = us_.token;
    agree();
    coordinate({us_.token, last_, std::move(before), followers});
    come();
    signpost_ = std::make_unique<Signpost>(options_, credentials_, us_.address);
  }

  /// Also by the watch's thread. Two launchers that each keep a store of one name would be two
  /// jobs.
  void see_whose_job_it_is(Store& store) const {
    if (!publication_ || !keeps_ || !publication_->replaced()) return;
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
      return ended(kExitDone);
    }
    log_error("{}: the job ends", how);
    return ended(kExitFailed);
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
            "", /*may_restart=*/true, /*counts=*/false};
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
                          fmt::format("the node that keeps the job's store ({}) ended", us_.host),
                          "", true, /*counts=*/false};
    if (generation_ >= 0 && !ended_)
      store_->compare_set(elastic::over(generation_), "", to_text(cause));
    if (generation_ < 0) store_->compare_set(elastic::kJobOver, "", cause.sentence);
    if (!store_->try_get(elastic::kJobOver)) store_->set(elastic::kKeeperLeaves, "1");
    server_->stop_listening();
    server_->wait_until_clients_left(Deadline::after(patience::kOthersLeave));
  }

  const RunOptions& options_;
  const net::Credentials credentials_;
  const Door door_;
  bool keeps_;  // the job's store
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<Store> store_;  // the job's
  std::unique_ptr<Store> table_;  // its own
  std::string address_;           // of the job's store
  const std::string own_address_;
  std::unique_ptr<EtcdPublication> publication_;
  Neighbours neighbours_;
  Member us_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Signpost> signpost_;
  int64_t generation_ = -1;  // the newest that this node has seen
  int node_ = 0;
  std::vector<int> workers_;
  std::vector<std::string> differences_;  // of the members, as they were said
  std::string keeper_;                    // the token of whose store it uses; "": not known
  Announcement last_;                     // that it has accepted or, never a member, seen
  bool member_ = false;                   // it has accepted one
  bool last_has_begun_ = false;           // so it is known here
  bool yielded_ = false;
  bool said_ = false;       // that it waits
  bool abandoned_ = false;  // those that had come here meet elsewhere
  bool leaving_ = false;
  bool ended_ = true;              // this node's workers of the generation
  std::atomic<bool> lost_{false};  // the store
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
