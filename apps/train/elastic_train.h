// tersewire train --elastic: a worker, or a server, of a job whose members come and go.
#pragma once

#include "apps/train/train_options.h"

namespace tersewire::apps {

class NoticeWatch;

// Throws WrongUsage for a job whose nodes cannot go on without one of them.
void train_elastically(TrainFlags& flags, NoticeWatch& notice);

}  // namespace tersewire::apps
