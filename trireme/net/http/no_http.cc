// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/check.h"
#include "trireme/net/http/http.h"

namespace trireme::net {

bool has_http() { return false; }

struct HttpClient::Handle {};

HttpClient::HttpClient(TlsFiles) {
  fail<ResourceError>(
      "this build speaks no HTTP, because libcurl's headers were missing (Debian: "
      "libcurl4-openssl-dev): install them and build again");
}
HttpClient::~HttpClient() = default;

HttpReply HttpClient::post(const std::string&, const std::string&, Duration,
                           const std::function<bool()>&) {
  return {};
}

}  // namespace trireme::net
