// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/connect_and_authenticate.h"

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/net/connect.h"

namespace trireme::detail {

ConnectAttempt connect_and_authenticate(const net::Endpoint& at,
                                        const net::Credentials& credentials, Deadline deadline,
                                        Duration limit) {
  ConnectAttempt out;
  auto until = net::sooner(deadline, limit);
  auto socket = net::try_connect(at, until, &out.why, &out.nobody_listens);
  if (!socket) return out;
  out.answered = true;
  if (at.is_unix()) net::check_same_user(*socket);
  try {
    auto entry = net::try_authenticate(*socket, credentials, until);
    if (entry.refused) {
      out.why = net::refusal_sentence(at.text(), *entry.refused, false);
      out.refused = std::move(entry.refused);
    } else {
      out.socket = std::move(socket);
      out.session = std::move(entry.session);
      out.port = entry.port;
    }
  } catch (const PeerLost& error) {
    out.why = error.what();
  } catch (const Timeout& error) {
    out.why = error.what();
  } catch (const Corrupt& error) {
    out.stranger = true;
    out.why = error.what();
  } catch (const Mismatch& error) {
    out.other_release = true;
    out.why = error.what();
  }
  return out;
}

ConnectAttempt connect_and_authenticate_until(const net::Endpoint& at,
                                              const net::Credentials& credentials,
                                              Deadline deadline) {
  auto start = Clock::now();
  net::BackOff back_off;
  bool warned = false;
  while (true) {
    auto one = connect_and_authenticate(at, credentials, deadline);
    if (one.socket) return one;
    check<UsageError>(!one.refused || one.refused->code == net::Refusal::busy, "{}", one.why);
    check<Mismatch>(!one.other_release, "the store at {}: {}", at.text(), one.why);
    check<UsageError>(
        !one.stranger,
        "the program listening at {} is not a Trireme store ({}): choose another port", at.text(),
        one.why);
    if (!warned && seconds_since(start) > 3) {
      warned = true;
      log_warn("the store at {} does not answer yet, after 3 s: {}; trying on", at.text(), one.why);
    }
    check<Timeout>(back_off.pause(deadline),
                   "no store at {} within {:.1f} s: {}. Is the process that serves it (rank 0, or "
                   "the launcher) running, and "
                   "is the address right?",
                   at.text(), seconds_since(start), one.why);
  }
}

}  // namespace trireme::detail
