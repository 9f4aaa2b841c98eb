// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "tests/support/command.h"
#include "tests/support/ports.h"
#include "trireme/base/error.h"
#include "trireme/net/http/http.h"
#include "trireme/rendezvous/etcd/client.h"

namespace trireme::testing {

/// A real etcd of one member on this host, in a folder of its own.
class EtcdServer {
 public:
  /// Why there can be none here; "": there can.
  static std::string missing() {
    if (!net::has_http()) return "no libcurl";
    for (const char* folder : {"/usr/bin/etcd", "/usr/local/bin/etcd"})
      if (::access(folder, X_OK) == 0) return "";
    return "no etcd (Debian: etcd-server)";
  }

  /// `scheme` https: with a certificate that it makes for its own address.
  explicit EtcdServer(std::string scheme = "http") : scheme_(std::move(scheme)) {
    // Another program may have taken the port in the meantime: etcd's gateway wants a number.
    for (int round = 0; round < 5 && !answers_; ++round) {
      port_ = free_tcp_port();
      start();
    }
  }

  /// With what it had. False: it does not answer.
  bool start() {
    const std::string url = scheme_ + "://" + endpoint();
    // Its log is a file, since nobody reads a pipe here. Elections within 0.2 s.
    Arguments words{"sh",
                    "-c",
                    "exec etcd \"$@\" >" + folder_ / "log" + " 2>&1",
                    "etcd",
                    "--data-dir=" + folder_ / "data",
                    "--listen-client-urls=" + url,
                    "--advertise-client-urls=" + url,
                    "--listen-peer-urls=http://127.0.0.1:0",
                    "--initial-advertise-peer-urls=http://127.0.0.1:0",
                    "--initial-cluster=default=http://127.0.0.1:0",
                    "--heartbeat-interval=20",
                    "--election-timeout=200"};
    if (scheme_ == "https") words.push_back("--auto-tls");
    process_ = std::make_unique<Command>(words);
    return answers_ = eventually(
               [&] {
                 try {
                   client().get("/");
                   return true;
                 } catch (const Error& error) {
                   return std::string(error.what()).find("password") != std::string::npos;
                 }
               },
               std::chrono::seconds(10));
  }
  void kill() { process_.reset(); }
  void send(int signal) const { process_->send(signal); }

  bool answers() const { return answers_; }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }
  /// Of its certificate.
  std::string authorities() const { return folder_ / "data/fixtures/client/cert.pem"; }
  std::string log() const { return read_file(folder_ / "log"); }
  EtcdClient client() const {
    EtcdServers servers;
    servers.urls = {scheme_ + "://" + endpoint()};
    if (scheme_ == "https") servers.tls.authorities = authorities();
    return EtcdClient(servers);
  }
  std::optional<std::string> get(const std::string& key) const { return client().get(key); }
  /// What the gateway answers, whatever it is asked.
  nlohmann::json ask(const std::string& path, const nlohmann::json& what) const {
    const auto reply = net::HttpClient().post(scheme_ + "://" + endpoint() + path, what.dump(),
                                              std::chrono::seconds(5));
    return nlohmann::json::parse(reply.body);
  }
  /// Keys and leases.
  size_t count() const {
    const auto keys =
        ask("/v3/kv/range", {{"key", "AA=="}, {"range_end", "AA=="}, {"count_only", true}});
    const auto leases = ask("/v3/lease/leases", nlohmann::json::object());
    return (keys.contains("count") ? std::stoul(keys["count"].get<std::string>()) : 0) +
           (leases.contains("leases") ? leases["leases"].size() : 0);
  }

 private:
  PrivateFolder folder_{"trireme-test"};
  const std::string scheme_;
  int port_ = 0;
  bool answers_ = false;
  std::unique_ptr<Command> process_;
};

}  // namespace trireme::testing
