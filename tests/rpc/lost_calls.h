// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>

#include "tests/rpc/workers.h"
#include "trireme/rpc/errors.h"

// What tests of faults ask of a call that is lost, and of its handler.
namespace trireme::rpc_test {

/// Whether a call that is lost had begun, and what its error says; `unknown` where it was answered.
inline rpc::Began began_of(rpc::Future<int> future, std::string* text = nullptr) {
  try {
    future.get();
  } catch (const rpc::CallLost& error) {
    if (text) *text = error.what();
    return error.began();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  return rpc::Began::unknown;
}

/// In a handler: waits until it is told to stop. False: it never was.
inline bool waits_for_stop(const rpc::Call& call) {
  std::mutex mutex;
  std::condition_variable_any told;
  std::unique_lock lock(mutex);
  told.wait_for(lock, call.stop_token(), kPlenty, [] { return false; });
  return call.stop_token().stop_requested();
}

}  // namespace trireme::rpc_test
