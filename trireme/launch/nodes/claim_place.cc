// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/claim_place.h"

#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/run_folder/generation_claims.h"
#include "trireme/rendezvous/etcd/client.h"

namespace trireme::launch {
namespace {

constexpr const char* kClaimVersion = "trireme claim 1";

class FileClaims final : public ClaimPlace {
 public:
  explicit FileClaims(std::string path) : path_(std::move(path)), claims_(path_) {}

  Claim claim(const std::string&, int64_t number, const Claim& ours) override {
    return read_claim(claims_.claim(number, to_text(ours)));
  }
  int64_t first_free() override { return claims_.newest() + 1; }
  std::string text() const override { return path_ + ".<n>"; }

 private:
  const std::string path_;
  const GenerationClaims claims_;
};

class EtcdClaims final : public ClaimPlace {
 public:
  EtcdClaims(const EtcdServers& servers, const std::string& id)
      : folder_("/trireme/" + id + "/claim/"), etcd_(servers) {
    etcd_.set_answer_limit(std::chrono::seconds(2));
  }

  Claim claim(const std::string& job, int64_t number, const Claim& ours) override {
    const int64_t lease = etcd_.grant(kKept);
    const std::string text = to_text(ours);
    const auto put = etcd_.put_if_absent(folder_ + job + "/" + std::to_string(number), text, lease);
    check<PeerLost>(!put.lease_ended, "etcd ended a lease at once");
    if (put.value != text) etcd_.revoke(lease);
    return read_claim(put.value);
  }
  int64_t first_free() override { return 0; }  // names are of one job
  std::string text() const override {
    return fmt::format("etcd at {} under {}", etcd_.servers().text(), folder_);
  }

 private:
  // The other part of the job has given up long before.
  static constexpr std::chrono::seconds kKept{3600};

  const std::string folder_;
  EtcdClient etcd_;
};

}  // namespace

std::unique_ptr<ClaimPlace> claim_place(const RunOptions& options) {
  if (!options.claims.empty()) return std::make_unique<FileClaims>(options.claims);
  if (options.rdzv_backend == "etcd")
    return std::make_unique<EtcdClaims>(options.etcd, options.rdzv_id);
  return nullptr;
}

std::string to_text(const ClaimPlace::Claim& claim) {
  const nlohmann::json json{
      {"version", kClaimVersion}, {"next", claim.next}, {"keeper", claim.keeper}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

ClaimPlace::Claim read_claim(const std::string& text) try {
  const auto json = nlohmann::json::parse(text);
  check<Corrupt>(json.at("version") == kClaimVersion,
                 "a claim of a generation says '{}', and this is '{}'", json.at("version").dump(),
                 kClaimVersion);
  const ClaimPlace::Claim claim{json.at("next"), json.at("keeper")};
  check<Corrupt>(claim.next >= 0 && claim.keeper.size() <= 1024,
                 "a claim says that generation {} follows", claim.next);
  return claim;
} catch (const nlohmann::json::exception& error) {
  fail<Corrupt>("a claim of a generation is in words that are not ours: {}", error.what());
}

}  // namespace trireme::launch
