// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <string>
#include <vector>

#include "tests/launch/job_process.h"
#include "trireme/base/file.h"
#include "trireme/launch/free_port.h"
#include "trireme/launch/job_store.h"
#include "trireme/net/secret.h"

// Launchers that meet on this host, each a process of its own, as on its own host.
namespace trireme::launch {

using Words = std::vector<std::string>;

/// The same secret for every launcher, unless a test says otherwise.
class Cluster {
 public:
  Cluster() { write_secret(folder_ / "secret", net::generate_secret()); }

  std::string secret() const { return folder_ / "secret"; }
  int port() const { return port_; }
  Words at_static(int nodes, int node, int workers) const {
    return {"--nnodes=" + std::to_string(nodes),           "--node-rank=" + std::to_string(node),
            "--nproc-per-node=" + std::to_string(workers), "--master-addr=127.0.0.1",
            "--master-port=" + std::to_string(port_),      "--rdzv-id=cluster"};
  }
  Words at_c10d(int nodes, int workers) const { return at_c10d(std::to_string(nodes), workers); }
  Words at_c10d(const std::string& nodes, int workers) const {
    return {"--nnodes=" + nodes,   "--nproc-per-node=" + std::to_string(workers),
            "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + std::to_string(port_),
            "--rdzv-id=cluster",   "--local-addr=127.0.0.1"};
  }
  /// Through the etcd there; a launcher that died is missed after two seconds.
  static Words at_etcd(const std::string& endpoint, const std::string& nodes, int workers,
                       const std::string& conf = "") {
    return {"--nnodes=" + nodes,
            "--nproc-per-node=" + std::to_string(workers),
            "--rdzv-backend=etcd-v3",
            "--rdzv-endpoint=" + endpoint,
            "--rdzv-id=cluster",
            "--rdzv-conf=keep_alive_interval=0.5,keep_alive_max_attempt=4" +
                (conf.empty() ? "" : "," + conf)};
  }
  static Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  JobProcess start(const Words& flags, const std::string& script,
                   const std::string& secret_file = "") const {
    const std::string file = secret_file.empty() ? secret() : secret_file;
    return JobProcess([flags, script, file] {
      ::setenv("TRIREME_SECRET_FILE", file.c_str(), 1);
      return launch_workers(parse_run_options(flags), {"/bin/sh", "-c", script});
    });
  }
  std::string path(const std::string& name) const { return folder_ / name; }

 private:
  PrivateFolder folder_{"trireme"};
  const int port_ = free_port();
};

}  // namespace trireme::launch
