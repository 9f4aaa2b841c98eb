// SPDX-License-Identifier: Apache-2.0
#pragma once

// Trireme's public headers, in reading order.
#include "trireme/base/error.h"                // what can go wrong, by what you can do next
#include "trireme/comm/group.h"                // ranks and collectives
#include "trireme/comm/run.h"                  // init_process_group, run_threads, spawn
#include "trireme/data/distributed_sampler.h"  // which samples this rank reads
#include "trireme/grad/ddp.h"                  // gradients reduced while backward runs
