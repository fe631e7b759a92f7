// What a job is written with: codecs, transports, workers and servers. Certificates, members that
// come and go, .tw files and the software card have headers of their own.
#pragma once

#include "tersewire/bytes.h"
#include "tersewire/codec.h"
#include "tersewire/communicator.h"
#include "tersewire/dry_run.h"
#include "tersewire/error.h"
#include "tersewire/message.h"
#include "tersewire/passing_transport.h"
#include "tersewire/policy.h"
#include "tersewire/predict.h"
#include "tersewire/probe.h"
#include "tersewire/setting_text.h"
#include "tersewire/simd.h"
#include "tersewire/state.h"
#include "tersewire/tensor.h"
#include "tersewire/thread_pool.h"
#include "tersewire/transport.h"
#include "tersewire/transports.h"
