// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

#include "trireme/rpc/wire/messages.h"

namespace trireme::rpc::detail {

/// What travels of an exception that a handler on `worker` threw. Without the call's number.
wire::Failure described(const std::exception_ptr& error, const std::string& worker);

/// What it says, without where it was thrown.
std::string text_of(const std::exception_ptr& error);

/// The exception that the caller of `method` gets.
std::exception_ptr rebuilt(const wire::Failure& failure, const std::string& method);

}  // namespace trireme::rpc::detail
