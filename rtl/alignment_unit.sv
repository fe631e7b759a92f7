// Fig. 9's alignment unit: packs the bursts of a packet, behind a head, into words of 32 bytes.
// A burst and a word a cycle; where bursts of more than 32 bytes have filled up a word of their
// own, one cycle takes no burst (at worst one in 17).
module alignment_unit #(
    parameter int SIDE = 1  // bits that travel beside a packet
) (
    input  logic            clk,
    input  logic            rst,
    input  logic            in_valid,
    output logic            in_ready,
    input  logic [   271:0] in_burst,  // bytes at and above in_bytes are 0
    input  logic [     5:0] in_bytes,  // 1 to 34
    input  logic            in_last,   // of its packet
    input  logic [    23:0] in_head,   // what the packet begins with; read at its first burst
    input  logic [SIDE-1:0] in_side,   // read at its last burst
    output logic            out_valid,
    input  logic            out_ready,
    output logic [   255:0] out_word,  // bytes behind the packet's end are 0
    output logic            out_last,
    output logic [    15:0] out_bytes,  // of the packet, head and all; valid with out_last
    output logic [SIDE-1:0] out_side    // valid with out_last
);
  localparam logic [5:0] HEAD_BYTES = 6'd3;
  logic [271:0] kept;      // up to 33 bytes that no word has taken
  logic [  5:0] filled;    // how many
  logic         is_first;  // the next burst is its packet's first
  logic         flushing;  // the packet's last burst is in
  logic [ 15:0] packet_bytes;

  logic [271:0] earlier;
  logic [  5:0] earlier_bytes;
  logic [527:0] joined;
  logic [  6:0] joined_bytes;
  logic slot, take, move;
  always_comb begin
    slot = !out_valid || out_ready;
    in_ready = slot && !flushing && filled < 6'd32;
    take = in_valid && in_ready;
    earlier = is_first ? {248'd0, in_head} : kept;
    earlier_bytes = is_first ? HEAD_BYTES : filled;
    if (take) begin
      joined = {256'd0, earlier} | ({256'd0, in_burst} << {earlier_bytes[4:0], 3'd0});
      joined_bytes = {1'b0, earlier_bytes} + {1'b0, in_bytes};
    end else begin
      joined = {256'd0, kept};
      joined_bytes = {1'b0, filled};
    end
    // A word leaves where it is full, and at the packet's end.
    move = slot && (take ? in_last || joined_bytes >= 7'd32 : flushing || filled >= 6'd32);
  end

  always_ff @(posedge clk) begin
    if (slot) begin
      out_word <= joined[255:0];
      out_last <= (flushing || take && in_last) && joined_bytes <= 7'd32;
    end
    if (take) begin
      packet_bytes <= (is_first ? 16'(HEAD_BYTES) : packet_bytes) + {10'd0, in_bytes};
      if (in_last) out_side <= in_side;
    end
    if (move) begin
      kept <= joined[527:256];
      filled <= joined_bytes <= 7'd32 ? 6'd0 : 6'(joined_bytes - 7'd32);
    end else if (take) begin
      kept <= joined[271:0];
      filled <= joined_bytes[5:0];
    end
    if (rst) begin
      out_valid <= 1'b0;
      filled <= 6'd0;
      is_first <= 1'b1;
      flushing <= 1'b0;
    end else begin
      if (slot) out_valid <= move;
      if (take) is_first <= in_last;
      if (take && in_last) flushing <= joined_bytes > 7'd32;
      else if (move && joined_bytes <= 7'd32) flushing <= 1'b0;
    end
  end
  assign out_bytes = packet_bytes;

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      a_bytes : assert (!take || in_bytes inside {[6'd1:6'd34]}) else $error("a burst's length");
      a_first : assert (!(take && is_first) || filled == 6'd0) else $error("packets overlap");
      a_clean : assert (!take || (in_burst >> {in_bytes, 3'd0}) == '0) else $error("burst not clean");
    end
  end
`endif
endmodule
