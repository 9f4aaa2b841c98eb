// SPDX-License-Identifier: Apache-2.0
// Keys of the job's store, all under "nodes/":
//   terms              what must be the same on all nodes; the first one's counts
//   arrived            how many node numbers were given (c10d)
//   node/<k>           "<workers> <host> <token>" of the launcher that is node k
//   join               "ok", when all are there
//   lost/<k>           node k's launcher has gone without a word (its last will)
//   <n>/master         MASTER_ADDR and MASTER_PORT of attempt n, said by node 0
//   <n>/over           a StopCause, or kAllDone
//   <n>/ended          how many nodes have no worker of attempt n any more
//   <n>/all_ended      all of them
//   <n>/memory/…       which steps they have in memory (nodes/shared_steps.h)
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <sstream>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/version.h"
#include "trireme/launch/free_port.h"
#include "trireme/launch/job_store.h"
#include "trireme/launch/nodes/compare_nodes.h"
#include "trireme/launch/nodes/elastic_nodes.h"
#include "trireme/launch/nodes/meeting.h"
#include "trireme/launch/nodes/nodes.h"
#include "trireme/launch/nodes/over_watch.h"
#include "trireme/launch/nodes/patience.h"
#include "trireme/launch/placement.h"
#include "trireme/net/address.h"
#include "trireme/rendezvous/join.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kProtocol = "trireme nodes 3";
constexpr const char* kAllDone = "all done";

std::string node_key(int node) { return fmt::format("nodes/node/{}", node); }
std::string lost_key(int node) { return fmt::format("nodes/lost/{}", node); }

struct NodeSeat {
  int workers = 0;
  std::string host;
};
NodeSeat parse_seat(const std::string& text) {
  NodeSeat seat;
  std::istringstream in(text);
  in >> seat.workers >> seat.host;
  check<Corrupt>(!in.fail() && seat.workers >= 1 && seat.workers <= 4096,
                 "the job's store says of a node: '{}'", text);
  return seat;
}

class ManyNodes final : public Nodes {
 public:
  ManyNodes(const RunOptions& options, Meeting meeting)
      : options_(options),
        door_(door_of(meeting)),
        server_(std::move(meeting.server)),
        store_(std::move(meeting.store)),
        address_(std::move(meeting.address)),
        own_address_(std::move(meeting.own_address)),
        publication_(std::move(meeting.publication)) {}

  ~ManyNodes() override {
    try {
      leave();
    } catch (const std::exception& error) {
      log_debug("left the other nodes without a word: {}", error.what());
    }
  }

  /// False: asked to stop.
  bool join(Deadline deadline, const std::function<bool()>& asked_to_stop) {
    agree_on_terms(*store_, fmt::format("{}; version {}; --nnodes={}; {}; --rdzv-backend={}",
                                        kProtocol, version(), options_.nodes,
                                        restart_terms(options_), options_.rdzv_backend));
    take_seat();
    const Clock::time_point start = Clock::now();
    bool said = false;
    while (true) {
      const auto missing = missing_nodes();
      if (missing.empty()) break;
      see_whether_nodes_still_come_here();
      if (asked_to_stop()) return false;
      const std::string who = fmt::format("{} {} of {}", missing.size() == 1 ? "node" : "nodes",
                                          detail::name_ranks(missing), options_.nodes);
      check<Timeout>(!deadline.expired(),
                     "{} did not come to {} within {:.0f} s: start 'trireme run' with the same "
                     "flags there{}, or see why it ended",
                     who, address_, seconds_since(start), turned_away());
      if (!said && Clock::now() - start > patience::kSayAfter) {
        said = true;
        log_warn("node {} waits for {} to come to {}", node_, who, address_);
      }
      try {
        store_->get(node_key(missing.front()), Deadline::after(patience::kSlice));
      } catch (const Timeout&) {
      }
    }
    store_->compare_set("nodes/join", "", "ok");
    for (int k = 0; k < options_.nodes; ++k) {
      const NodeSeat seat =
          parse_seat(store_->get(node_key(k), Deadline::after(patience::kStoreAnswers)));
      workers_.push_back(seat.workers);
      hosts_.push_back(seat.host);
    }
    compare(asked_to_stop);
    return true;
  }

  int node_rank() const override { return node_; }
  const std::vector<int>& workers_of_nodes() const override { return workers_; }
  std::string store_address() const override { return address_; }

  Begun begin(int restarts, const std::function<bool()>&) override {
    watch_.reset();
    attempt_ = restarts;
    cause_.reset();
    ended_ = false;
    watch_ = std::make_unique<OverWatch>(
        job_store(), key("over"),
        server_ ? std::function<void(Store&)>([this](Store& store) { see_who_is_lost(store); })
                : std::function<void(Store&)>(),
        [this](const std::string& why) { return to_text(store_is_lost(why)); });
    if (node_ == 0) {
      const Begun begun{own_address_, free_port(options_.master_port), restarts, restarts};
      store_->set(key("master"), fmt::format("{} {}", begun.master_port, begun.master_address));
      return begun;
    }
    Begun begun{"", 0, restarts, restarts};
    std::istringstream in(store_->get(key("master"), Deadline::after(patience::kBegin)));
    in >> begun.master_port >> begun.master_address;
    return begun;
  }

  std::unique_ptr<Store> job_store() override {
    return server_ ? server_->local_store() : store_->clone(Deadline::after(patience::kBegin));
  }
  std::optional<Door> door() const override { return door_; }
  std::unique_ptr<Store> own_table() override { return table_on(*store_, key("memory")); }

  int fd() const override { return watch_->fd(); }

  std::optional<StopCause> stopped() override {
    if (!cause_ && watch_) note(watch_->value());
    return cause_;
  }

  StopCause stop(const StopCause& ours) override {
    try {
      note(store_->compare_set(key("over"), "", to_text(ours)));
    } catch (const Error& error) {
      if (!cause_) cause_ = store_is_lost(error.what());
    }
    // All had ended well before: what happened since is ours alone.
    return cause_.value_or(ours);
  }

  std::optional<StopCause> finish(const End& here,
                                  const std::function<bool()>& asked_to_stop) override {
    ended_ = true;
    const auto follow = here.well ? Deadline::never() : Deadline::after(patience::kFollow);
    try {
      if (store_->add(key("ended"), 1) == options_.nodes) {
        store_->compare_set(key("over"), "", kAllDone);
        store_->set(key("all_ended"), "ok");
      }
      while (!stopped() && watch_->value().empty()) {
        pollfd fds[] = {{watch_->fd(), POLLIN, 0}};
        ::poll(fds, 1, static_cast<int>(patience::kSlice / milliseconds(1)));
        if (follow.expired()) stop(here.otherwise);
        if (asked_to_stop()) return stop({node_, asked_sentence(), "", false});
      }
      if (cause_) wait_until_all_ended();
      if (cause_ && store_->try_get(lost_key(cause_->node))) lost_one_ = true;
    } catch (const Error& error) {
      if (!cause_) cause_ = store_is_lost(error.what());
      cause_->may_restart = false;
    }
    if (lost_one_) say_what_would_go_on();
    return cause_;
  }

 private:
  void compare(const std::function<bool()>& asked_to_stop) {
    if (options_.facts.empty()) return;
    const Placement at = place(workers_, node_, 0);
    compare_nodes(*store_, {net::host_name(), at.rank, at.local_world, options_.facts, {}, {}},
                  node_, options_.nodes, Deadline::after(patience::kAreCompared), asked_to_stop);
  }
  std::string key(const char* name) const { return fmt::format("nodes/{}/{}", attempt_, name); }
  std::string asked_sentence() const {
    return fmt::format("node {} ({}) was asked to stop", node_, net::host_name());
  }
  std::string turned_away() const {
    const std::string who = server_ ? server_->turned_away() : "";
    return who.empty() ? "" : fmt::format(" ({})", who);
  }
  /// Those that come later go where etcd says.
  void see_whether_nodes_still_come_here() const {
    check<PeerLost>(!publication_ || !publication_->replaced(),
                    "etcd had lost this launcher's address, and names another one");
  }
  void take_seat() {
    token_ =
        fmt::format("{} {} {}", options_.nproc_per_node, net::host_name(), net::random_token());
    if (options_.rdzv_backend == "static") {
      node_ = options_.node_rank;
      check<UsageError>(try_seat(node_),
                        "node {} of this job is taken already, by a launcher on {}: give each node "
                        "its own --node-rank, and two jobs at the same time different ports",
                        node_, parse_seat(store_->try_get(node_key(node_)).value_or("1 ?")).host);
    } else {
      node_ = 0;
      while (node_ < options_.nodes && !try_seat(node_)) ++node_;
      check<UsageError>(node_ < options_.nodes,
                        "all {} nodes of this job have come already: start {} launchers, and give "
                        "two jobs at the same time different values of {}",
                        options_.nodes, options_.nodes,
                        options_.rdzv_backend == "etcd" ? "--rdzv-id" : "--rdzv-endpoint");
    }
    store_->set_will(lost_key(node_), "1");
    seated_ = true;
  }

  /// The seat of a launcher that went before all had come is free again.
  bool try_seat(int node) {
    if (store_->compare_set(node_key(node), "", token_) == token_) return true;
    if (store_->try_get("nodes/join") || !store_->try_get(lost_key(node))) return false;
    const std::string before = store_->try_get(node_key(node)).value_or("");
    if (store_->compare_set(node_key(node), before, token_) != token_) return false;
    store_->delete_key(lost_key(node));
    return true;
  }

  /// Those that went before all had come are missing, too.
  std::vector<int> missing_nodes() {
    std::vector<std::string> seats, losses;
    for (int k = 0; k < options_.nodes; ++k) {
      seats.push_back(node_key(k));
      losses.push_back(lost_key(k));
    }
    const auto no_seat = store_->missing(seats), no_loss = store_->missing(losses);
    std::vector<int> missing;
    for (int k = 0; k < options_.nodes; ++k)
      if (std::count(no_seat.begin(), no_seat.end(), seats[k]) ||
          !std::count(no_loss.begin(), no_loss.end(), losses[k]))
        missing.push_back(k);
    return missing;
  }

  /// By the watch's thread of the node that keeps the store: a launcher that is gone takes its
  /// workers with it.
  void see_who_is_lost(Store& store) {
    for (int k = 0; k < options_.nodes; ++k) {
      if (!store.try_get(lost_key(k))) continue;
      const StopCause cause{
          k,
          fmt::format("node {} ({}) is gone: its launcher ended without a word, or its host or the "
                      "network to it did",
                      k, hosts_.at(static_cast<size_t>(k))),
          "", false};
      store.compare_set(key("over"), "", to_text(cause));
      store.compare_set(key("all_ended"), "", "lost");
      return;
    }
  }

  /// By the watch's thread, too.
  StopCause store_is_lost(const std::string& why) {
    lost_one_ = true;
    return {node_,
            fmt::format("the launcher that keeps the job's store at {} is gone: {}", address_, why),
            "", false};
  }

  void say_what_would_go_on() const {
    log_info(
        "a job of --nnodes={0} ends with the first node that is lost. With --nnodes={0}:{0} it "
        "waits "
        "for another launcher in its place, and with --nnodes=MIN:{0} it goes on without{1}",
        options_.nodes,
        options_.rdzv_backend == "static" ? "; such nodes meet by --rdzv-backend=c10d or etcd"
                                          : "");
  }

  void note(const std::string& over) {
    if (cause_ || over.empty() || over == kAllDone) return;
    cause_ = read_stop_cause(over);
  }

  void wait_until_all_ended() {
    try {
      if (store_->get(key("all_ended"), Deadline::after(patience::kAllStop)) != "ok")
        cause_->may_restart = false;
    } catch (const Timeout&) {
      log_warn("the workers of some nodes did not end within {:.0f} s",
               std::chrono::duration<double>(patience::kAllStop).count());
      cause_->may_restart = false;
    }
  }

  void leave() {
    watch_.reset();
    publication_.reset();
    store_->set_answer_limit(patience::kStoreAnswers);
    if (seated_ && workers_.empty() && !store_->try_get("nodes/join"))
      store_->delete_key(node_key(node_));
    else if (attempt_ >= 0 && !ended_)  // by an exception
      stop({node_, fmt::format("the launcher of node {} ({}) gave up", node_, net::host_name()), "",
            false});
    if (!server_ || workers_.empty()) return;
    // Who has come and not begun yet connects once more, to hear what the others say by themselves.
    if (ended_) server_->stop_listening();
    server_->wait_until_clients_left(Deadline::after(patience::kOthersLeave));
  }

  const RunOptions& options_;
  const Door door_;
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<Store> store_;
  const std::string address_, own_address_;
  std::unique_ptr<EtcdPublication> publication_;
  std::string token_;
  int node_ = 0;
  bool seated_ = false;
  std::vector<int> workers_;
  std::vector<std::string> hosts_;
  int attempt_ = -1;
  bool ended_ = false;
  std::atomic<bool> lost_one_{false};  // a launcher
  std::optional<StopCause> cause_;
  std::unique_ptr<OverWatch> watch_;
};

}  // namespace

std::unique_ptr<Nodes> meet_nodes(const RunOptions& options, const std::string& job_id,
                                  const std::string& secret_file,
                                  const std::function<bool()>& asked_to_stop, const Getenv& env) {
  const net::Admission admission = net::load_admission(env);
  check<UsageError>(admission.secret.has_value(),
                    "several nodes meet over TCP, and that takes a secret{}: put the same one on "
                    "every node (umask 077; openssl rand -hex 32 > ~/.config/trireme/secret), or "
                    "name its file in TRIREME_SECRET_FILE",
                    admission.insecure ? ", also with TRIREME_INSECURE=1" : "");
  write_secret(secret_file, admission.secret->bytes());
  const auto deadline = Deadline::after(options.join_timeout);
  const net::Credentials credentials{job_id, admission.secret};
  while (true) {
    auto meeting = open_meeting(options, credentials, deadline, asked_to_stop);
    if (!meeting) return nullptr;
    try {
      if (options.come_and_go) return elastic_nodes(options, std::move(*meeting), asked_to_stop);
      auto nodes = std::make_unique<ManyNodes>(options, std::move(*meeting));
      if (!nodes->join(deadline, asked_to_stop)) return nullptr;
      log_info("node {} of {}: {}", nodes->node_rank(), options.nodes, nodes->store_address());
      return nodes;
    } catch (const PeerLost& error) {
      if (options.rdzv_backend != "etcd") throw;
      log_warn("{}: the nodes meet again", error.what());
    }
  }
}

}  // namespace trireme::launch
