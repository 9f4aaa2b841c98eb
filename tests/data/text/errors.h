// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "trireme/base/error.h"

/// `statement` throws a `Kind` whose text holds `part`.
#define EXPECT_ERROR(statement, Kind, part)                                             \
  try {                                                                                 \
    statement;                                                                          \
    ADD_FAILURE() << "nothing is thrown";                                               \
  } catch (const Kind& error) {                                                         \
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what(); \
  } catch (const std::exception& error) {                                               \
    ADD_FAILURE() << "another kind of error: " << error.what();                         \
  }
