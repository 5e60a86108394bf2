"""Kernel names with their labels, launch attributes and typical durations; API calls; the taxonomy."""
# ruff: noqa: E501 - kernel names are as long as they are

from __future__ import annotations

import numpy as np

COMPUTE, NCCL, COPY, AUX = 7, 14, 18, 21
TAXONOMY = [
    "gemm.marlin",
    "gemm.dense",
    "gemm.grouped",
    "cast",
    "quant",
    "attention.mla",
    "attention.other",
    "moe.routing",
    "comm.allreduce",
    "comm.allgather",
    "comm.other",
    "norm",
    "activation",
    "rope",
    "kvcache",
    "sampling",
    "memory",
    "reduction",
    "elementwise",
    "other",
    "unclassified",
]
EXPOSED = [("exposed " if c.startswith("comm.") else "") + c for c in TAXONOMY]
ROWS = [*EXPOSED, "memcpy", "memset", "opaque graph", "idle"]  # wall rows, in taxonomy order

# --------------------------------------------------------------------------- kernels
K: dict[str, tuple] = {}  # key -> (short, name, mangled, category, family, api, ns, attributes, stream)
_EX, _DRV = "cudaLaunchKernelExC_v11060", "cuLaunchKernelEx"


def _k(
    key,
    short,
    cat,
    family,
    ns,
    *,
    name,
    api="cudaLaunchKernel_v7000",
    regs=32,
    grid=(64, 1, 1),
    block=(256, 1, 1),
    ss=0,
    ds=0,
    stream=COMPUTE,
    mangled=None,
):
    mangled = mangled or (name if short is None else f"_Z{len(short)}{short}v")
    K[key] = (short or name, name, mangled, cat, family, api, ns, (regs, *grid, *block, ss, ds), stream)


_k(
    "prep",
    None,
    "other",
    "scheduler_metadata",
    1700,
    api="cuLaunchKernel",
    grid=(1, 1, 1),
    name="_prepare_pos_seq_lens_kernel",
)
_k(
    "embed",
    "vectorized_gather_kernel",
    "memory",
    "gather_scatter",
    3100,
    grid=(128, 7, 1),
    name="void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)",
)
_k(
    "rms",
    "fused_add_rms_norm_kernel",
    "norm",
    "norm",
    2600,
    grid=(128, 1, 1),
    block=(896, 1, 1),
    regs=40,
    name="std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long, c10::BFloat16*, c10::BFloat16 const*, float, int, int)",
)
_k(
    "cast",
    "unrolled_elementwise_kernel",
    "cast",
    "cast_dynamic",
    4200,
    grid=(896, 1, 1),
    block=(128, 1, 1),
    mangled="_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_23direct_copy_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE1_clEvENKUlvE5_clEvEUlfE_St5arrayIPcLm2EELi4E23TrivialOffsetCalculatorILi1EjESB_NS0_6memory12LoadWithCastILi1EEENSC_13StoreWithCastILi1EEEEEviT_T0_T2_T3_T4_T5_",
    name="void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1>)",
)
_k(
    "qkv_a",
    None,
    "gemm.dense",
    "cublas_nvjet_splitk",
    7200,
    api=_DRV,
    grid=(34, 4, 1),
    block=(384, 1, 1),
    regs=168,
    ds=197632,
    name="nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
)
_k(
    "qkv_red",
    "splitKreduce_kernel",
    "gemm.dense",
    "splitk_reduce",
    2200,
    grid=(66, 1, 1),
    block=(32, 16, 1),
    name="void splitKreduce_kernel<float, float, float, float, true, true, false>(cublasSplitKParams<float>, float const*, float const*, float*, float const*, float const*, float const*, float const*, float*, void*, long, float*, int*)",
)
_k(
    "q_norm",
    "rms_norm_kernel",
    "norm",
    "norm",
    2100,
    grid=(128, 1, 1),
    block=(192, 1, 1),
    name="void vllm::rms_norm_kernel<float, 4, 4, false>(float*, float const*, long, long, long, long, long, float const*, float, int, int)",
)
_k(
    "q_b",
    None,
    "gemm.dense",
    "cublas_nvjet",
    6100,
    api=_DRV,
    grid=(24, 4, 1),
    block=(384, 1, 1),
    regs=168,
    ds=213504,
    name="nvjet_tst_96x64_64x10_1x2_h_bz_bias_TNN",
)
_k(
    "w_uk",
    None,
    "gemm.dense",
    "cublas_nvjet",
    4900,
    api=_DRV,
    grid=(132, 1, 1),
    block=(384, 1, 1),
    regs=168,
    ds=230400,
    name="nvjet_tst_32x64_64x16_4x1_v_bz_TNN",
)
_k(
    "rope",
    "BatchQKApplyRotaryPosIdsCosSinCacheEnhancedKernel",
    "rope",
    "rope",
    2300,
    grid=(128, 1, 1),
    block=(512, 1, 1),
    name="void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheEnhancedKernel<false, false, 256u, 8u, 32u, __half, long>(__half*, __half*, __half*, __half*, __half*, __half*, __half*, float*, long*, unsigned int, unsigned int, unsigned int, unsigned int, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, long*)",
)
_k(
    "kv_store",
    "concat_and_cache_mla_kernel",
    "kvcache",
    "kvcache_write",
    1900,
    grid=(128, 1, 1),
    block=(512, 1, 1),
    name="void vllm::concat_and_cache_mla_kernel<unsigned short, unsigned char, (vllm::Fp8KVCacheDataType)1>(unsigned short const*, unsigned short const*, unsigned char*, long const*, int, int, int, int, int, int, int, float const*)",
)
_k(
    "mla",
    "BatchMLAPagedAttentionKernel",
    "attention.mla",
    "mla_decode",
    17500,
    api=_EX,
    grid=(1, 1, 132),
    block=(384, 1, 1),
    regs=168,
    ds=232448,
    name="void flashinfer::mla::BatchMLAPagedAttentionKernel<flashinfer::mla::KernelTraits<true, 2u, true, 512u, 64u, 64u, 64u, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, int>, flashinfer::MLAParams<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, int> >(flashinfer::MLAParams<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, int>)",
)
_k(
    "mla_comb",
    "flash_fwd_mla_combine_kernel",
    "attention.mla",
    "mla_combine",
    3600,
    api=_EX,
    grid=(128, 1, 16),
    name="void smxx::decode::flash_fwd_mla_combine_kernel<cutlass::bfloat16_t, 512, 8, 128, 256>(CombineParams)",
)
_k(
    "copy",
    "elementwise_kernel",
    "memory",
    "copy_strided",
    2400,
    grid=(448, 1, 1),
    block=(128, 1, 1),
    mangled="_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastIZZZNS0_23direct_copy_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE1_clEvENKUlvE10_clEvEUlN3c108BFloat16EE_EEvS4_RKT_EUliE_EEviT1_",
    name="void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1} const&)::{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1} const&)::{lambda(int)#1})",
)
_k(
    "w_uv",
    None,
    "gemm.dense",
    "cublas_nvjet",
    4500,
    api=_DRV,
    grid=(4, 16, 16),
    block=(384, 1, 1),
    regs=168,
    ds=143360,
    name="nvjet_tst_64x24_64x16_4x1_v_bz_bias_TNT",
)
_k(
    "quant",
    "per_token_group_quant_8bit_kernel",
    "quant",
    "act_quant",
    1800,
    grid=(448, 1, 1),
    name="void per_token_group_quant_8bit_kernel<c10::Half, c10::Float8_e4m3fn, true, true, float>(c10::Half const*, void*, float*, int, int, int, float, float, float, int, int)",
)
_k(
    "o_proj",
    "sm90_fp8_gemm_1d2d_impl",
    "gemm.dense",
    "deepgemm",
    8300,
    api=_DRV,
    grid=(112, 1, 1),
    regs=168,
    ds=199680,
    name="void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, 1024u, 1u, 256u, 128u, 128u, 128u, 128u, 128u, 3u, 128u, 256u, 2u, true, 132u, (deep_gemm::GemmType)0, deep_gemm::epilogue::transform::EpilogueIdentity>(float*, int*, unsigned int, unsigned int, unsigned int, CUtensorMap_st, CUtensorMap_st, CUtensorMap_st, CUtensorMap_st)",
)
_k(
    "ar",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "comm.allreduce",
    "nccl_allreduce",
    9000,
    api=_DRV,
    grid=(24, 1, 1),
    block=(544, 1, 1),
    regs=96,
    ss=45264,
    stream=NCCL,
    mangled="_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE",
    name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
)
_k(
    "custom_ar",
    "cross_device_reduce_2stage",
    "comm.allreduce",
    "custom_allreduce",
    6500,
    grid=(36, 1, 1),
    block=(512, 1, 1),
    regs=64,
    name="vllm::cross_device_reduce_2stage<__nv_bfloat16, 4>(RankData*, RankSignals, Signal*, T1*, int, int)",
)
_k(
    "ag",
    "ncclDevKernel_AllGather_RING_LL",
    "comm.allgather",
    "nccl_allgather",
    15000,
    api=_DRV,
    grid=(24, 1, 1),
    block=(544, 1, 1),
    regs=96,
    ss=45264,
    stream=NCCL,
    name="ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)
_k(
    "rms2",
    None,
    "norm",
    "triton.norm",
    2400,
    api="cuLaunchKernel",
    grid=(128, 1, 1),
    name="triton_red_fused_add_rms_norm_0",
)
_k(
    "router",
    "gemvNSP_kernel",
    "gemm.dense",
    "gemv",
    3900,
    grid=(96, 1, 1),
    block=(128, 1, 1),
    regs=80,
    name="void gemvNSP_kernel<float, float, float, float, 1, 32, 4, 1024, cublasGemvParams<cublasGemvTensorStridedBatched<float const>, cublasGemvTensorStridedBatched<float const>, cublasGemvTensorStridedBatched<float>, float> >(cublasGemvParams<cublasGemvTensorStridedBatched<float const>, cublasGemvTensorStridedBatched<float const>, cublasGemvTensorStridedBatched<float>, float>)",
)
_k(
    "topk",
    "grouped_topk_fused_kernel",
    "moe.routing",
    "topk_gating",
    4200,
    api=_EX,
    grid=(128, 1, 1),
    block=(128, 1, 1),
    regs=48,
    name="void vllm::moe::grouped_topk_fused_kernel<float, float, int, (vllm::moe::ScoringFunc)1>(float*, float*, int*, float const*, long, long, long, long, long, bool, double)",
)
_k(
    "align",
    "moe_align_block_size_small_batch_expert_kernel",
    "moe.routing",
    "expert_align",
    5600,
    grid=(2, 1, 1),
    block=(1024, 1, 1),
    ds=5124,
    name="void vllm::moe::moe_align_block_size_small_batch_expert_kernel<long, 256>(long const*, int*, int*, int*, int*, int, int, unsigned long, int, int, bool)",
)
_k(
    "sort",
    "count_and_sort_expert_tokens_kernel",
    "moe.routing",
    "expert_align",
    2500,
    grid=(4, 1, 1),
    name="void count_and_sort_expert_tokens_kernel<int>(int const*, int*, int*, unsigned long)",
)
_k(
    "marlin13",
    "Marlin",
    "gemm.marlin",
    "moe_w4a16_int4",
    21500,
    grid=(132, 1, 1),
    regs=255,
    ds=166912,
    mangled="_ZN16marlin_moe_wna166MarlinILl1125899906909960ELl1125899907892224ELl1125899906909960ELl1125899906909960ELi128ELi1ELi8ELi4ELb1ELi4ELi2ELb0EEEvPK4int4S3_PS1_S4_S3_PKfS3_S6_S3_PKiS8_S8_S8_S6_ibiiiiPibbb",
    name="void marlin_moe_wna16::Marlin<1125899906909960l, 1125899907892224l, 1125899906909960l, 1125899906909960l, 128, 1, 8, 4, true, 4, 2, false>(int4 const*, int4 const*, int4*, int4*, int4 const*, float const*, int4 const*, float const*, int4 const*, int const*, int const*, int const*, int const*, float const*, int, bool, int, int, int, int, int*, bool, bool, bool)",
)
_k(
    "silu",
    "act_and_mul_kernel",
    "activation",
    "glu",
    2700,
    grid=(1024, 1, 1),
    name="void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, (bool)1>(T1 *, const T1 *, int)",
)
_k(
    "marlin2",
    "Marlin",
    "gemm.marlin",
    "moe_w4a16_int4",
    14200,
    grid=(132, 1, 1),
    regs=255,
    ds=166912,
    name="void marlin_moe_wna16::Marlin<1125899906909960l, 1125899907892224l, 1125899906909960l, 1125899906909960l, 128, 1, 4, 8, false, 4, 8, false>(int4 const*, int4 const*, int4*, int4*, int4 const*, float const*, int4 const*, float const*, int4 const*, int const*, int const*, int const*, int const*, float const*, int, bool, int, int, int, int, int*, bool, bool, bool)",
)
_k(
    "shared13",
    None,
    "gemm.grouped",
    "moe_triton",
    8800,
    api="cuLaunchKernel",
    grid=(96, 1, 1),
    block=(128, 1, 1),
    regs=255,
    ds=98304,
    stream=AUX,
    name="fused_moe_kernel",
)
_k(
    "shared2",
    None,
    "gemm.dense",
    "cublas_legacy",
    5200,
    api=_DRV,
    grid=(224, 4, 1),
    block=(128, 1, 1),
    regs=96,
    ds=82944,
    stream=AUX,
    name="sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
)
_k(
    "moe_sum",
    "moe_sum_kernel",
    "moe.routing",
    "moe_finalize",
    3000,
    grid=(128, 1, 1),
    block=(1024, 1, 1),
    name="void vllm::moe::moe_sum_kernel<c10::BFloat16, (int)2>(T1 *, const T1 *, int)",
)
_k(
    "add",
    "vectorized_elementwise_kernel",
    "elementwise",
    "arith",
    1700,
    grid=(448, 1, 1),
    block=(128, 1, 1),
    name="void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctorOnOther_add<c10::BFloat16>, std::array<char*, 2ul> >(int, at::native::CUDAFunctorOnOther_add<c10::BFloat16>, std::array<char*, 2ul>)",
)
_k(
    "lm_head",
    None,
    "gemm.dense",
    "cublas_nvjet",
    61000,
    api=_DRV,
    grid=(160, 1, 1),
    block=(384, 1, 1),
    regs=168,
    ds=221696,
    name="nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
)
_k(
    "softmax",
    "cunn_SoftMaxForward",
    "reduction",
    "softmax",
    18500,
    grid=(128, 1, 1),
    block=(1024, 1, 1),
    ds=4096,
    name="void at::native::<unnamed>::cunn_SoftMaxForward<(int)4, float, float, float, at::native::<unnamed>::SoftMaxForwardEpilogue>(T4 *, const T2 *, int)",
)
_k(
    "sample",
    "TopKTopPSamplingFromProbKernel",
    "sampling",
    "sampling",
    16200,
    grid=(128, 1, 1),
    block=(1024, 1, 1),
    regs=40,
    name="void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u, (cub::CUB_200802_SM_800_890_900_1000_1200::BlockScanAlgorithm)2, (cub::CUB_200802_SM_800_890_900_1000_1200::BlockReduceAlgorithm)2, 1u, false, float, int>(float*, int*, float*, int*, int*, int, float, unsigned int, unsigned long, unsigned long)",
)
_k(
    "fill",
    "vectorized_elementwise_kernel",
    "memory",
    "fill",
    1500,
    grid=(108, 1, 1),
    block=(128, 1, 1),
    mangled="_ZN2at6native29vectorized_elementwise_kernelILi2ENS0_11FillFunctorIlEESt5arrayIPcLm1EEEEviT0_T1_",
    name="void at::native::vectorized_elementwise_kernel<(int)2, at::native::FillFunctor<long>, std::array<char *, (unsigned long)1>>(int, T2, T3)",
)
KEYS = list(K)
KIDX = {k: i for i, k in enumerate(KEYS)}
NK = len(KEYS)
H2D, D2H, SET = NK, NK + 1, NK + 2  # device operations that are no kernels
DEV_NS = [K[k][6] for k in KEYS] + [2400, 1500, 1100]
DEV_STREAM = np.array([K[k][8] for k in KEYS] + [COPY, COMPUTE, COMPUTE])
CAT = np.array([TAXONOMY.index(K[k][3]) for k in KEYS])
FAMILIES = sorted({K[k][4] for k in KEYS})
FAM = np.array([FAMILIES.index(K[k][4]) for k in KEYS])
IS_COMM = np.array([K[k][3].startswith("comm.") for k in KEYS])
IS_NCCL = np.array([K[k][4].startswith("nccl_") for k in KEYS])

MLA = [
    "rms",
    "cast",
    "qkv_a",
    "qkv_red",
    "q_norm",
    "q_b",
    "w_uk",
    "rope",
    "kv_store",
    "mla",
    "mla_comb",
    "copy",
    "w_uv",
    "quant",
    "o_proj",
]
API = {
    "cudaLaunchKernel_v7000": 2600,
    "cudaLaunchKernelExC_v11060": 2900,
    "cuLaunchKernel": 2300,
    "cuLaunchKernelEx": 2400,
    "cudaEventRecord_v3020": 700,
    "cudaStreamWaitEvent_v3020": 650,
    "cudaMemcpyAsync_v3020": 4200,
    "cudaMemsetAsync_v3020": 3100,
    "cudaStreamSynchronize_v3020": 1500,
    "cudaGraphLaunch_v10000": 20_000,
    "cudaStreamBeginCapture_v10000": 5000,
    "cudaStreamEndCapture_v10000": 30_000,
    "cudaGraphInstantiateWithFlags_v11040": 90_000,
    "cudaStreamIsCapturing_v10000": 400,
    "cudaStreamGetCaptureInfo_v3_v12030": 600,
    "cudaGraphAddEventRecordNode_v11010": 2600,
    "cudaEventQuery_v3020": 900,
}
APIS = list(API)
AIDX = {a: i for i, a in enumerate(APIS)}
API_NS = np.array(list(API.values()))
DRIVER_API = np.array([1 if a.startswith("cu") and not a.startswith("cuda") else 0 for a in APIS])
SHORT_GAP = {AIDX[a] for a in APIS if "Event" in a or "Captur" in a}
