// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// The communication backend, and how gradients are combined.
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
             .help = "backend for collectives between ranks; hybrid: local inside each host, "
                     "comm.across between hosts"},
            backend);
    f.field({.path = "comm.across",
             .choices = "gloo mpi",
             .when = "comm.backend=hybrid",
             .help = "backend for collectives between hosts"},
            across);
    f.field({.path = "comm.check",
             .choices = "hash each off",
             .when = "comm.backend=gloo,mpi,hybrid",
             .help = "how ranks detect that they call different things; each: before every "
                     "collective; hash: after every 64 and when one waits (local always compares)"},
            check);
    f.field({.path = "comm.timeout_s",
             .min = 0.001,
             .max = f.kMany,
             .help = "deadline of a collective, in seconds"},
            timeout_s);
    f.field({.path = "comm.bucket_mb",
             .min = 0,
             .max = 1e5,
             .help = "size of a gradient bucket in MiB; 0: a size that suits the backend"},
            bucket_mb);
    f.field({.path = "comm.strategy",
             .choices = "all_reduce adasum parameter_server broadcast_parameters",
             .help = "how gradients are combined; parameter_server: rank 0 collects them and sends "
                     "the sum back; broadcast_parameters: rank 0 steps and sends weights; adasum: "
                     "adaptive summation"},
            strategy);
    f.field({.path = "comm.tune_buckets",
             .help = "try out bucket size, order and algorithm during training"},
            tune_buckets);
    f.field({.path = "comm.tuning_budget",
             .min = 0.0001,
             .max = 1,
             .when = "comm.tune_buckets=true",
             .help = "fraction of the time so far that tuning may take"},
            tuning_budget);
    f.field({.path = "comm.buckets_file",
             .help = "file for the tuned settings, which the next run reads"},
            buckets_file);
  }
};

}  // namespace trireme
