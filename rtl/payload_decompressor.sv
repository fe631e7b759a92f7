// What payload_compressor made, as it was but for the codec's error. Ends every payload with a last
// word, good or bad.
module payload_decompressor #(
    parameter int MAX_PAYLOAD_BYTES = 9174  // no payload was longer before
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         in_valid,
    output logic         in_ready,
    input  logic [255:0] in_data,       // bytes at and above in_bytes are 0
    input  logic [  5:0] in_bytes,      // 1 to 32; 32 but for the last
    input  logic         in_last,
    input  logic         in_truncated,  // with in_last: the payload is not all there
    input  logic [ 15:0] in_total,      // bytes of the compressed payload
    input  logic [ 15:0] in_sum,        // of the compressed payload, with in_last
    output logic         out_valid,
    input  logic         out_ready,
    output logic [255:0] out_data,
    output logic         out_last,
    // With out_last:
    output logic         out_ok,        // it was what payload_compressor makes
    output logic [ 15:0] out_bytes,
    output logic [ 15:0] in_sum_again   // the compressed payload's sum
);
  localparam int SIDE = 1 + 1 + 16 + 16;
  logic burst_valid, burst_last, burst_ok, enable;
  logic [ 15:0] tags, total, sum;
  logic [255:0] data;
  logic [ 47:0] offsets;
  logic [  3:0] floats;
  logic [  1:0] rest_bytes;
  logic [  4:0] layout;
  assign enable = !out_valid || out_ready;
  burst_buffer #(
      .MAX_PAYLOAD_BYTES(MAX_PAYLOAD_BYTES)
  ) bursts (
      .clk, .rst, .in_valid, .in_ready, .in_data, .in_bytes, .in_last, .in_truncated, .in_total,
      .in_sum, .out_valid(burst_valid), .out_ready(enable), .out_tags(tags), .out_data(data),
      .out_offsets(offsets), .out_floats(floats), .out_rest_bytes(rest_bytes),
      .out_layout(layout), .out_last(burst_last), .out_ok(burst_ok), .out_total(total),
      .out_sum(sum));
  decompression_unit #(
      .SIDE(SIDE)
  ) unit (
      .clk, .rst, .enable, .in_valid(burst_valid), .in_tags(tags), .in_data(data),
      .in_offsets(offsets), .in_floats(floats), .in_rest_bytes(rest_bytes), .in_layout(layout),
      .in_side({burst_last, burst_ok, total, sum}), .out_valid, .out_data,
      .out_side({out_last, out_ok, out_bytes, in_sum_again}));
endmodule
