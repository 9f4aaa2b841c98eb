// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/error.h"

namespace trireme {

/// An error of one rank, on its way to the others.
struct RankFailure {
  enum Kind : uint8_t { none, usage, resource, corrupt, other };
  uint8_t kind = none;
  std::string text;
  TRIREME_FIELDS(kind, text)
  explicit operator bool() const { return kind != none; }
};

/// What `body` throws, but for what ends the group (a lost peer, a timeout): that goes on as it is.
template <class Body>
RankFailure failure_of(const Body& body) {
  try {
    body();
    return {};
  } catch (const PeerLost&) {
    throw;
  } catch (const Timeout&) {
    throw;
  } catch (const Aborted&) {
    throw;
  } catch (const Mismatch&) {
    throw;
  } catch (const UsageError& e) {
    return {RankFailure::usage, e.what()};
  } catch (const ResourceError& e) {
    return {RankFailure::resource, e.what()};
  } catch (const Corrupt& e) {
    return {RankFailure::corrupt, e.what()};
  } catch (const std::exception& e) {
    return {RankFailure::other, e.what()};
  }
}

/// Throws the failure as the error that it was; nothing for none.
inline void raise(const RankFailure& f) {
  if (f.kind == RankFailure::usage) throw UsageError(f.text);
  if (f.kind == RankFailure::resource) throw ResourceError(f.text);
  if (f.kind == RankFailure::corrupt) throw Corrupt(f.text);
  if (f) throw Error(f.text);
}

}  // namespace trireme
