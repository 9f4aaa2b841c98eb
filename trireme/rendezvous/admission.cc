// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/admission.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"

namespace trireme::detail {

std::string meeting_of(const RankEnv& env) {
  std::string out = fmt::format("{}/{}@{}", env.job_id, env.attempt, env.master_port);
  if (out.size() <= net::kMaxJobId) return out;
  return fmt::format("{}…#{:016x}", out.substr(0, 128), stable_hash(out));
}

net::Credentials tcp_credentials(const RankEnv& env, std::string job_id, const net::Getenv& getenv,
                                 bool launched) {
  auto admission = net::load_admission(getenv);
  if (!admission.given() && launched)
    fail<UsageError>(
        "TRIREME_STORE={} names a TCP port, and that takes the job's secret: {}. The launcher that "
        "sets "
        "TRIREME_STORE sets TRIREME_SECRET_FILE too: pass both on to every rank",
        env.store_endpoint, admission.origin);
  if (!admission.given())
    fail<UsageError>(
        "ranks on several hosts meet over TCP, and that takes a secret: {}. Put the same one on "
        "every host (umask 077; openssl "
        "rand -hex 32 > ~/.config/trireme/secret), or set TRIREME_INSECURE=1 on all ranks where "
        "only trusted machines reach "
        "the port. If all {} ranks run on one host, set LOCAL_WORLD_SIZE={} on each and no secret "
        "is needed",
        admission.origin, env.world_size, env.world_size);
  return {std::move(job_id), std::move(admission.secret)};
}

}  // namespace trireme::detail
