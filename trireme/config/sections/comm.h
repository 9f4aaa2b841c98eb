// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// What carries collectives, and how gradients become one.
struct CommSection {
  std::string backend = "local";
  std::string across = "gloo";
  std::string check = "hash";
  double timeout_s = 600;
  double bucket_mb = 0;
  std::string strategy = "all_reduce";
  bool tune_buckets = false;
  double tuning_budget = 0.02;
  std::optional<std::string> buckets_file;

  void fields(Fields& f) {
    f.field({.path = "comm.backend",
             .choices = "local gloo mpi hybrid",
             .help = "what carries collectives between ranks; hybrid: local inside each host, "
                     "comm.across between hosts"},
            backend);
    f.field({.path = "comm.across",
             .choices = "gloo mpi",
             .when = "comm.backend=hybrid",
             .help = "what carries collectives between hosts"},
            across);
    f.field(
        {.path = "comm.check",
         .choices = "hash each off",
         .when = "comm.backend=gloo,mpi,hybrid",
         .help = "how ranks find out that they call different things: each: before every "
                 "collective; hash: after every 64, and when one waits (local always compares)"},
        check);
    f.field({.path = "comm.timeout_s",
             .min = 0.001,
             .max = f.kMany,
             .help = "deadline of a collective, in seconds"},
            timeout_s);
    f.field({.path = "comm.bucket_mb",
             .min = 0,
             .max = 1e5,
             .help = "size of a gradient bucket in MiB; 0: what suits the backend"},
            bucket_mb);
    f.field({.path = "comm.strategy",
             .choices = "all_reduce adasum parameter_server broadcast_parameters",
             .help = "how gradients become one: parameter_server collects them on rank 0 and sends "
                     "the sum back; with broadcast_parameters rank 0 steps and sends weights; "
                     "adasum adds adaptively"},
            strategy);
    f.field({.path = "comm.tune_buckets",
             .help = "bucket size, order and algorithm are tried out while training"},
            tune_buckets);
    f.field({.path = "comm.tuning_budget",
             .min = 0.0001,
             .max = 1,
             .when = "comm.tune_buckets=true",
             .help = "part of all time so far that trying may have cost"},
            tuning_budget);
    f.field({.path = "comm.buckets_file",
             .help = "what was found is written there, and taken from there by the next run"},
            buckets_file);
  }
};

}  // namespace trireme
