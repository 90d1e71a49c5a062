// Stands in for the <c10/hip/HIPGuard.h> of a ROCm build of torch.
#pragma once

#include <contribbot/torch_hip.h>
