// Stands in for the <ATen/hip/HIPContext.h> of a ROCm build of torch.
#pragma once

#include <contribbot/torch_hip.h>
