// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/net/http/http.h"

namespace trireme {

/// The servers of one etcd cluster.
struct EtcdServers {
  std::vector<std::string> urls;  // "http://host:2379"
  net::TlsFiles tls;

  /// "host1:2379, host2:2379": for texts.
  std::string text() const;
};

}  // namespace trireme
