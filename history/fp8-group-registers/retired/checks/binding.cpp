// Registers the three entry points of per_token_group_quant.cu as torch.ops.group_quant.*,
// through the stable ABI as vLLM's own torch_bindings.cpp does. Declared here, and not
// included from ops.h, which needs the rest of the library.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

void per_token_group_quant_fp8(const Tensor& input, Tensor& output_q, Tensor& output_s,
                               int64_t group_size, double eps, double fp8_min, double fp8_max,
                               bool scale_ue8m0, bool dummy_is_scale_transposed,
                               bool dummy_is_tma_aligned);
void per_token_group_quant_8bit_packed(const Tensor& input, Tensor& output_q,
                                       Tensor& output_s_packed, int64_t group_size, double eps,
                                       double min_8bit, double max_8bit);
void per_token_group_quant_int8(const Tensor& input, Tensor& output_q, Tensor& output_s,
                                int64_t group_size, double eps, double int8_min, double int8_max);

STABLE_TORCH_LIBRARY(group_quant, library) {
  library.def(
      "fp8(Tensor input, Tensor! output_q, Tensor! output_s, int group_size, float eps, "
      "float fp8_min, float fp8_max, bool scale_ue8m0, bool dummy_is_scale_transposed, "
      "bool dummy_is_tma_aligned) -> ()");
  library.def(
      "packed(Tensor input, Tensor! output_q, Tensor! output_s_packed, int group_size, "
      "float eps, float min_8bit, float max_8bit) -> ()");
  library.def(
      "int8(Tensor input, Tensor! output_q, Tensor! output_s, int group_size, float eps, "
      "float int8_min, float int8_max) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(group_quant, CUDA, library) {
  library.impl("fp8", TORCH_BOX(&per_token_group_quant_fp8));
  library.impl("packed", TORCH_BOX(&per_token_group_quant_8bit_packed));
  library.impl("int8", TORCH_BOX(&per_token_group_quant_int8));
}
