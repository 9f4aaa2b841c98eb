// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/peers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/doctor/local_link.h"
#include "cli/doctor/network.h"
#include "cli/doctor/tcp_link.h"
#include "trireme/base/check.h"
#include "trireme/launch/flags/text.h"
#include "trireme/launch/process/proc_text.h"
#include "trireme/net/address.h"
#include "trireme/net/secret.h"
#include "trireme/rendezvous/rendezvous.h"

namespace trireme::doctor {
namespace {

/// Ranks are on one host when they can share memory: one kernel, one network namespace.
std::string host_id() {
  if (auto given = net::process_env("TRIREME_HOST_ID"); given && !given->empty()) return *given;
  std::error_code error;
  return std::string(
             launch::trim(launch::read_if_there("/proc/sys/kernel/random/boot_id").value_or("?"))) +
         "/" + std::filesystem::read_symlink("/proc/self/ns/net", error).string();
}

struct Member {
  std::string host, id, endpoint, token;
  int mbit = 0;
};

class Job {
 public:
  explicit Job(const PeerOptions& options)
      : options_(options),
        rank_(options.env.rank),
        size_(options.env.world_size),
        store_(open_store(options.env, options.init_method, until(), server_)),
        listener_(net::Endpoint::tcp({own_address(), 0})) {}

  Report run();

 private:
  std::string own_address();
  void meet();
  std::vector<Report> reports();
  LinkResult measure(const Link& link, size_t index);
  std::vector<LinkResult> links();
  void locals(Section& s);
  void show(Section& s, const std::vector<LinkResult>& links);
  int host_of(int rank) const { return hosts_[static_cast<size_t>(rank)]; }
  const Member& member(int rank) const { return members_[static_cast<size_t>(rank)]; }
  /// JSON that somebody put under this key.
  ordered_json get(const std::string& key) {
    return ordered_json::parse(store_->get(key, until()));
  }
  void put(const std::string& key, const ordered_json& value) {
    store_->set(key, value.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  }
  /// For the next step; while links are measured, one after the other, with time for all of them.
  Deadline until() const { return Deadline::after(options_.timeout + all_links_); }

  const PeerOptions& options_;
  const int rank_, size_;
  int mbit_ = 0;
  Duration all_links_{};
  ServerHandle server_;
  std::unique_ptr<Store> store_;
  net::Listener listener_;
  std::vector<Member> members_;
  std::vector<int> hosts_;                  // of each rank, numbered by first rank
  std::vector<std::vector<int>> ranks_of_;  // of each host
};

/// Loopback where all are here; else the address by which this host talks to rank 0's.
std::string Job::own_address() {
  if (options_.env.single_host() || options_.env.master_addr.empty()) return "127.0.0.1";
  const auto interfaces = read_interfaces();
  const Route route = route_to(options_.env.master_addr, interfaces);
  check<ResourceError>(route.error.empty(), "no way to the master, {}: {}",
                       options_.env.master_addr, route.error);
  // Debian gives a host's own name a loopback address: of no use to the others.
  const bool of_no_use = net::is_loopback(route.local);
  for (const Interface& i : interfaces) {
    if (of_no_use ? !i.up || i.loopback || i.addresses.empty() : i.name != route.interface)
      continue;
    mbit_ = i.mbit;
    return of_no_use ? i.addresses.front() : route.local;
  }
  return route.local;
}

void Job::meet() {
  const std::string token = net::random_token();
  ordered_json self{{"host", net::host_name()},
                    {"id", host_id()},
                    {"endpoint", listener_.endpoint().text()},
                    {"token", token},
                    {"mbit", mbit_}};
  store_->set(fmt::format("doctor/member/{}", rank_), self.dump());
  std::map<std::string, int> numbers;
  for (int r = 0; r < size_; ++r) {
    const auto m = get(fmt::format("doctor/member/{}", r));
    members_.push_back({m.at("host"), m.at("id"), m.at("endpoint"), m.at("token"), m.at("mbit")});
    check<Corrupt>(members_.back().token.size() == kTokenBytes, "rank {}: a bad token", r);
    const auto [it, is_new] = numbers.emplace(members_.back().id, static_cast<int>(numbers.size()));
    if (is_new) ranks_of_.emplace_back();
    hosts_.push_back(it->second);
    ranks_of_[static_cast<size_t>(it->second)].push_back(r);
  }
}

/// The first rank of every host looks at it, all at once; the figures of links come after.
std::vector<Report> Job::reports() {
  std::vector<Report> all;
  if (!options_.examine) return all;
  const auto key = [](size_t host) { return fmt::format("doctor/report/{}", host); };
  for (size_t host = 0; host < ranks_of_.size(); ++host) {
    if (ranks_of_[host][0] != rank_) continue;
    Report report = options_.examine();
    put(key(host), report.to_json());
    if (rank_ == 0) all.push_back(std::move(report));
  }
  for (size_t host = 0; host < ranks_of_.size(); ++host) {
    if (rank_ != 0) {
      store_->wait({key(host)}, until());
      continue;
    }
    if (host == 0) continue;
    const auto json = get(key(host));
    Report report;
    Section other(member(ranks_of_[host][0]).host);
    other.json = json;
    for (const auto& f : json.at("findings"))
      other.findings.push_back(
          {fmt::format("{}: {}", other.name, f.at("section").get<std::string>()), f.at("what"),
           f.at("do")});
    const auto& mine = all.front().sections.front().json;
    for (const char* what : {"trireme", "libtorch"})
      if (const auto theirs = json.at("versions").value(what, ordered_json());
          mine.value(what, ordered_json()) != theirs)
        other.find(fmt::format("{} is of version {} there and {} on {}", what, theirs.dump(),
                               mine.value(what, ordered_json()).dump(), net::host_name()),
                   "install the same build on every host");
    report.sections.push_back(other);
    all.push_back(std::move(report));
  }
  return all;
}

LinkResult Job::measure(const Link& link, size_t index) {
  const std::string key = fmt::format("doctor/link/{}", index);
  // One link at a time: none slows another.
  if (index > 0) store_->wait({fmt::format("doctor/link/{}", index - 1)}, until());
  const auto limit = net::sooner(until(), std::chrono::seconds(20));
  if (rank_ == link.from) {
    try {
      answer_link(listener_, member(link.from).token, limit);
    } catch (const Error&) {  // the other end says what went wrong
    }
  } else if (rank_ == link.to) {
    const auto f = ask_link(member(link.from).endpoint, member(link.from).token, limit);
    put(key, {{"error", f.error},
              {"alpha", f.model.alpha},
              {"beta", f.model.beta},
              {"clock", f.clock.seconds},
              {"clock_error", f.clock.error}});
  }
  LinkResult result;
  if (rank_ != 0) return result;
  const auto json = get(key);
  result.link = link;
  result.from_host = member(link.from).host;
  result.to_host = member(link.to).host;
  result.one_host = host_of(link.from) == host_of(link.to);
  result.error = json.at("error");
  result.model = {json.at("alpha"), json.at("beta")};
  // Asked by `to`: the difference is from's clock minus to's.
  result.clock = {-json.at("clock").get<double>(), json.at("clock_error")};
  result.mbit = result.one_host ? 0 : std::min(member(link.from).mbit, member(link.to).mbit);
  return result;
}

std::vector<LinkResult> Job::links() {
  const auto plan = links_of(hosts_);
  all_links_ = std::chrono::seconds(5) * static_cast<int>(plan.size());
  std::vector<LinkResult> results;
  for (size_t i = 0; i < plan.size(); ++i)
    if (rank_ == 0 || rank_ == plan[i].from || rank_ == plan[i].to)
      results.push_back(measure(plan[i], i));
  if (!plan.empty()) store_->wait({fmt::format("doctor/link/{}", plan.size() - 1)}, until());
  return results;
}

/// The local engine on every host that has several ranks, one host after the other.
void Job::locals(Section& s) {
  ordered_json list = ordered_json::array();
  for (size_t host = 0; host < ranks_of_.size(); ++host) {
    const auto& ranks = ranks_of_[host];
    if (ranks.size() < 2) continue;
    const std::string key = fmt::format("doctor/local/{}", host);
    const auto me = std::find(ranks.begin(), ranks.end(), rank_);
    if (me != ranks.end()) {
      const auto f =
          measure_local(*store_, fmt::format("doctor/engine/{}/", host),
                        static_cast<int>(me - ranks.begin()), static_cast<int>(ranks.size()),
                        net::sooner(until(), std::chrono::seconds(20)).remaining());
      if (me == ranks.begin()) {
        ordered_json links = ordered_json::array();
        for (size_t i = 0; i < f.links.size(); ++i)
          links.push_back({{"from", ranks[0]},
                           {"to", ranks[i + 1]},
                           {"alpha_us", f.links[i].alpha * 1e6},
                           {"beta_gb_per_s", f.links[i].beta / 1e9}});
        put(key, {{"host", member(rank_).host},
                  {"ranks", ranks},
                  {"error", f.error},
                  {"barrier_us", f.barrier * 1e6},
                  {"all_reduce_8_bytes_us", f.all_reduce * 1e6},
                  {"links", links}});
      }
    }
    if (rank_ != 0) {
      store_->wait({key}, until());
      continue;
    }
    const auto json = get(key);
    list.push_back(json);
    const std::string where =
        fmt::format("ranks {} ({})", text_of_list(ranks), json.at("host").get<std::string>());
    if (const std::string error = json.at("error"); !error.empty()) {
      s.row("local engine", fmt::format("{}: {}", where, error));
      s.find(fmt::format("the local engine does not run between {}: {}", where, error),
             "look at the sections kernel and limits, or use --backend gloo");
      continue;
    }
    s.row("local engine", fmt::format("{}: barrier {:.2f} us, all_reduce of 8 B {:.2f} us", where,
                                      json.at("barrier_us").get<double>(),
                                      json.at("all_reduce_8_bytes_us").get<double>()));
    for (const auto& link : json.at("links"))
      s.row("",
            fmt::format("{:>3} - {:<3} alpha {:>8.2f} us   beta {:>6.2f} GB/s",
                        link.at("from").get<int>(), link.at("to").get<int>(),
                        link.at("alpha_us").get<double>(), link.at("beta_gb_per_s").get<double>()));
  }
  s.json["local"] = list;
}

void Job::show(Section& s, const std::vector<LinkResult>& links) {
  ordered_json hosts = ordered_json::array(), list = ordered_json::array();
  for (const auto& ranks : ranks_of_) {
    hosts.push_back({{"host", member(ranks[0]).host}, {"ranks", ranks}});
    s.row(s.rows.empty() ? "hosts" : "",
          fmt::format("{}: rank(s) {}", member(ranks[0]).host, text_of_list(ranks)));
  }
  bool first = true;
  for (const auto& l : links) {
    const std::string clock = l.one_host ? ""
                                         : fmt::format("   clock {:+.3f} ms (±{:.3f})",
                                                       l.clock.seconds * 1e3, l.clock.error * 1e3);
    s.row(first ? "TCP" : "",
          fmt::format("{:>3} - {:<3} {}", l.link.from, l.link.to,
                      l.error.empty() ? fmt::format("alpha {:>8.2f} us   beta {:>6.2f} GB/s{}",
                                                    l.model.alpha * 1e6, l.model.beta / 1e9, clock)
                                      : "not reached: " + l.error));
    first = false;
    ordered_json json{{"from", l.link.from}, {"to", l.link.to}, {"one_host", l.one_host}};
    if (l.error.empty()) {
      json["alpha_us"] = l.model.alpha * 1e6;
      json["beta_gb_per_s"] = l.model.beta / 1e9;
      json["clock_difference_us"] = l.clock.seconds * 1e6;
      json["clock_error_us"] = l.clock.error * 1e6;
    } else {
      json["error"] = l.error;
    }
    list.push_back(json);
  }
  s.json["ranks"] = size_;
  s.json["hosts"] = hosts;
  s.json["tcp"] = list;
  s.findings = advise(links);
}

Report Job::run() {
  meet();
  std::vector<Report> hosts = reports();
  Section s("peers");
  const auto results = links();
  show(s, results);
  locals(s);
  Report report;
  if (rank_ != 0) return report;
  if (!hosts.empty()) report = std::move(hosts[0]);
  report.sections.push_back(std::move(s));
  for (size_t host = 1; host < hosts.size(); ++host)
    report.sections.push_back(std::move(hosts[host].sections[0]));
  return report;
}

}  // namespace

Report examine_peers(const PeerOptions& options) { return Job(options).run(); }

std::vector<std::string> own_names() {
  std::vector<std::string> names{net::host_name()};
  const size_t dot = names[0].find('.');
  if (dot != std::string::npos) names.push_back(names[0].substr(0, dot));
  for (const Interface& i : read_interfaces())
    names.insert(names.end(), i.addresses.begin(), i.addresses.end());
  return names;
}

RankEnv env_of_list(const std::vector<std::string>& hosts, int rank,
                    const std::vector<std::string>& own) {
  check<UsageError>(hosts.size() >= 2,
                    "doctor --peers: name at least two hosts, rank 0's first, and run the same "
                    "line on each");
  std::vector<int> here;
  for (size_t i = 0; i < hosts.size(); ++i)
    if (std::find(own.begin(), own.end(), hosts[i]) != own.end())
      here.push_back(static_cast<int>(i));
  const int count = static_cast<int>(hosts.size());
  if (rank < 0) {
    check<UsageError>(here.size() == 1,
                      "doctor --peers {}: {} of them is this host ({}): say which one with --rank",
                      fmt::join(hosts, ","), here.empty() ? "none" : "more than one", own.front());
    rank = here[0];
  }
  check<UsageError>(rank < count, "doctor --rank {}: --peers names {} hosts, 0 to {}", rank, count,
                    count - 1);
  RankEnv env;
  env.rank = env.local_rank = rank;
  env.world_size = count;
  env.local_world_size = here.size() == hosts.size() ? count : 0;
  env.node_rank = -1;
  env.master_addr = hosts[0];
  env.source = "--peers";
  return env;
}

}  // namespace trireme::doctor
