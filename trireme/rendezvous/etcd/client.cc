// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/etcd/client.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/net/printable.h"

namespace trireme {
namespace {

std::string without_scheme(const std::string& url) { return url.substr(url.find("://") + 3); }

/// One server's part of a sentence.
std::string said_of(const std::string& url, const std::string& why) {
  return fmt::format("{}: {}", without_scheme(url), why);
}

void append(std::string& list, const std::string& part) {
  if (!list.empty()) list += "; ";
  list += part;
}

}  // namespace

std::string EtcdServers::text() const {
  std::string out;
  for (const std::string& url : urls) out += (out.empty() ? "" : ", ") + without_scheme(url);
  return out;
}

EtcdClient::EtcdClient(EtcdServers servers, std::function<bool()> give_up)
    : servers_(std::move(servers)), give_up_(std::move(give_up)), http_(servers_.tls) {
  check<UsageError>(!servers_.urls.empty(), "no server of etcd is named");
}

std::optional<std::string> EtcdClient::get(const std::string& key) {
  std::optional<std::string> value;
  call(etcd::get_message(key), [&](const std::string& json) { value = etcd::read_value(json); });
  return value;
}

int64_t EtcdClient::grant(std::chrono::seconds ttl) {
  int64_t lease = 0;
  call(etcd::grant_message(ttl.count()),
       [&](const std::string& json) { lease = etcd::read_grant(json); });
  return lease;
}

bool EtcdClient::keep_alive(int64_t lease) {
  bool alive = false;
  call(etcd::keep_alive_message(lease),
       [&](const std::string& json) { alive = etcd::read_keep_alive(json); });
  return alive;
}

void EtcdClient::revoke(int64_t lease) {
  call(etcd::revoke_message(lease), [](const std::string&) {});
}

EtcdClient::Put EtcdClient::put_if_absent(const std::string& key, const std::string& value,
                                          int64_t lease) {
  Put put;
  put.lease_ended = !call(
      etcd::put_if_absent_message(key, value, lease),
      [&](const std::string& json) { put.value = etcd::read_put_if_absent(json).value_or(value); });
  return put;
}

bool EtcdClient::call(const etcd::Message& message, const Read& read) {
  std::string passing, lasting;  // why not, of each server
  for (size_t i = 0; i < servers_.urls.size(); ++i) {
    const size_t at = (first_ + i) % servers_.urls.size();
    const std::string& url = servers_.urls[at];
    try {
      const bool found = ask(url, message, read);
      first_ = at;
      return found;
    } catch (const PeerLost& error) {
      append(passing, said_of(url, error.what()));
    } catch (const Timeout&) {
      append(passing, said_of(url, fmt::format("no answer within {:.0f} s",
                                               std::chrono::duration<double>(limit_).count())));
    } catch (const Corrupt& error) {
      append(lasting, said_of(url, fmt::format("this is no etcd of version 3.4 or later: {}",
                                               error.what())));
    } catch (const UsageError& error) {
      append(lasting, said_of(url, error.what()));
    }
  }
  check<UsageError>(!passing.empty(), "etcd cannot be used. {}", lasting);
  if (!lasting.empty()) append(passing, lasting);
  fail<PeerLost>("etcd does not answer. {}", passing);
}

bool EtcdClient::ask(const std::string& url, const etcd::Message& message, const Read& read) {
  const net::HttpReply reply = http_.post(url + message.path, message.json, limit_, give_up_);
  if (reply.status == 200) {
    read(reply.body);
    local_host_ = reply.local_host;
    return true;
  }
  const etcd::Refusal refusal = etcd::read_refusal(reply.body);
  const std::string text = net::printable(refusal.text);
  if (refusal.code == etcd::kNotFound) return false;
  if (refusal.code == etcd::kInvalid && text.find("user name is empty") != std::string::npos)
    fail<UsageError>(
        "it asks for a user and a password, which Trireme does not show: give it an etcd without "
        "authentication, guarded by certificates "
        "(--rdzv-conf=protocol=https,cert=…,key=…,cacert=…)");
  if (refusal.code >= 0 && reply.status >= 500)
    fail<PeerLost>("{}", text);  // it has no leader, say
  if (refusal.code >= 0) fail<UsageError>("it refuses: {}", text);
  if (reply.status >= 500) fail<PeerLost>("HTTP status {}", reply.status);  // of what is before it
  fail<Corrupt>("HTTP status {} at {}", reply.status, message.path);
}

}  // namespace trireme
