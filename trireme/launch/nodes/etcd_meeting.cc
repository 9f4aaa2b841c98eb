// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/etcd_meeting.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/launch/nodes/elastic_keys.h"
#include "trireme/launch/nodes/patience.h"
#include "trireme/net/address.h"
#include "trireme/net/connect.h"
#include "trireme/net/connect_and_authenticate.h"
#include "trireme/net/printable.h"
#include "trireme/rendezvous/etcd/client.h"
#include "trireme/rendezvous/job_ports.h"
#include "trireme/store/tcp_store.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kPlaceVersion = 1;
constexpr Duration kOneEntry = seconds(2);

/// What is published.
struct Place {
  net::Address address;
  std::string host;   // its name, for texts
  std::string token;  // unlike any other's
};

std::string to_text(const Place& place) {
  const nlohmann::json json{{"trireme", kPlaceVersion},
                            {"address", place.address.text()},
                            {"host", place.host},
                            {"token", place.token}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Corrupt: not one of ours.
Place read_place(const std::string& text) try {
  check<Corrupt>(text.size() <= 4096, "it is too long");
  const auto json = nlohmann::json::parse(text);
  const int version = json.at("trireme");
  check<Corrupt>(version == kPlaceVersion, "it is of another release of Trireme");
  return {net::parse_address(json.at("address").get<std::string>()),
          net::printable(json.at("host").get<std::string>()), json.at("token")};
} catch (const nlohmann::json::exception& error) {
  fail<Corrupt>("it is not an address of ours");
} catch (const UsageError& error) {
  fail<Corrupt>("{}", net::printable(error.what()));
}

std::string key_name(const RunOptions& options) { return "/trireme/" + options.rdzv_id + "/store"; }

EtcdPublication::Key key_of(const RunOptions& options, const net::Address& address) {
  EtcdPublication::Key key{key_name(options),
                           to_text({address, net::host_name(), net::random_token()})};
  key.keep_alive_every = options.keep_alive_interval;
  key.ttl = std::chrono::ceil<seconds>(options.keep_alive_interval * options.keep_alive_attempts);
  return key;
}

class EtcdMeeting {
 public:
  EtcdMeeting(const RunOptions& options, const net::Credentials& credentials, Deadline deadline,
              const std::function<bool()>& asked_to_stop)
      : options_(options),
        credentials_(credentials),
        deadline_(deadline),
        asked_to_stop_(asked_to_stop),
        key_(key_name(options)),
        etcd_(options.etcd, [&] { return asked_to_stop() || deadline.expired(); }) {}

  std::optional<Meeting> open() {
    net::BackOff back_off(milliseconds(50), patience::kSlice);
    while (true) {
      try {
        if (auto meeting = attempt()) return meeting;
      } catch (const PeerLost& error) {
        why_not_ = error.what();
      } catch (const Aborted&) {  // asked to stop, or late: why_not_ is what was known before
      }
      if (asked_to_stop_()) return std::nullopt;
      check<Timeout>(back_off.pause(deadline_),
                     "the nodes of job '{}' did not meet through etcd at {} within {:.0f} s: {}",
                     options_.rdzv_id, options_.etcd.text(), seconds_since(start_), why_not_);
      if (!said_ && Clock::now() - start_ > patience::kSayAfter) {
        said_ = true;
        log_warn("job '{}' at etcd {}: {}; trying on", options_.rdzv_id, options_.etcd.text(),
                 why_not_);
      }
    }
  }

 private:
  /// nullopt: not now, and why_not_ says why.
  std::optional<Meeting> attempt() {
    std::string there = etcd_.get(key_).value_or("");
    if (there.empty())
      if (auto meeting = keep_store(&there)) return meeting;
    return enter(there);
  }

  std::string local_address() const {
    return options_.local_addr.empty() ? etcd_.local_host() : options_.local_addr;
  }

  /// nullopt: another was faster, and is at `there`.
  std::optional<Meeting> keep_store(std::string* there) {
    Meeting meeting;
    meeting.credentials = credentials_;
    meeting.own_address = local_address();
    meeting.server = serve_job(options_, credentials_,
                               detail::listen_at_first_free(meeting.own_address, {0, 0}));
    const net::Address address{meeting.own_address, meeting.server->endpoints().at(0).address.port};
    meeting.address = address.text();
    meeting.publication = EtcdPublication::publish(etcd_, key_of(options_, address), there);
    if (!meeting.publication) return std::nullopt;
    meeting.store = meeting.server->local_store();
    return meeting;
  }

  std::optional<Meeting> enter(const std::string& there) {
    Place place;
    try {
      place = read_place(there);
    } catch (const Corrupt& error) {
      fail<UsageError>(
          "what stands under {} in etcd is not where a job's store is ({}): choose another "
          "--rdzv-id, or delete it with 'etcdctl del {}'",
          key_, error.what(), key_);
    }
    const net::Endpoint at = net::Endpoint::tcp(place.address);
    const bool entered_before = std::exchange(entered_, true);
    auto entry = detail::connect_and_authenticate(at, credentials_, deadline_, kOneEntry);
    const std::string who =
        fmt::format("the store that {} keeps at {}", place.host, place.address.text());
    check<Mismatch>(!entry.other_release, "{}: {}", who, entry.why);
    using net::Refusal;
    if (entry.refused && entry.refused->code != Refusal::busy &&
        entry.refused->code != Refusal::other_job)
      fail<UsageError>(
          "job '{}' in etcd is not ours: {}. Choose another --rdzv-id, unless it is "
          "meant to be one job",
          options_.rdzv_id, entry.why);
    if (!entry.socket) {
      // What the deadline cut short tells less than what was known.
      if (deadline_.expired() && entered_before) return std::nullopt;
      why_not_ = fmt::format(
          "{} does not let us in ({}). If that launcher lives, name its address that other nodes "
          "reach with --local-addr there; if not, its place is free in some seconds",
          who, entry.why);
      return std::nullopt;
    }
    Meeting meeting;
    meeting.store = std::make_shared<TcpStore>(std::move(*entry.socket), std::move(entry.session),
                                               at, credentials_);
    if (takes_nobody(*meeting.store)) {
      why_not_ = fmt::format(
          "{} is that of a job of this name that has all its nodes, or ends: start each node once, "
          "and give two jobs at the same time different values of --rdzv-id",
          who);
      return std::nullopt;
    }
    meeting.address = place.address.text();
    meeting.own_address = local_address();
    meeting.local_host = meeting.own_address;
    meeting.credentials = credentials_;
    return meeting;
  }

  /// An earlier job of this name, or this one without a place.
  bool takes_nobody(Store& store) const {
    return store.try_get(options_.come_and_go ? elastic::kJobOver : "nodes/join").has_value();
  }

  const RunOptions& options_;
  const net::Credentials& credentials_;
  const Deadline deadline_;
  const std::function<bool()>& asked_to_stop_;
  const std::string key_;
  EtcdClient etcd_;
  const Clock::time_point start_ = Clock::now();
  std::string why_not_ = "etcd does not answer";
  bool entered_ = false;  // or tried to
  bool said_ = false;
};

}  // namespace

std::optional<Meeting> open_etcd_meeting(const RunOptions& options,
                                         const net::Credentials& credentials, Deadline deadline,
                                         const std::function<bool()>& asked_to_stop) {
  return EtcdMeeting(options, credentials, deadline, asked_to_stop).open();
}

std::unique_ptr<EtcdPublication> publish_store(const RunOptions& options,
                                               const std::string& address,
                                               const std::function<bool()>& give_up) {
  EtcdClient etcd(options.etcd, give_up);
  std::string there;
  return EtcdPublication::publish(etcd, key_of(options, net::parse_address(address)), &there);
}

}  // namespace trireme::launch
