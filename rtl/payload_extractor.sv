// Takes a packet's words and gives its payload from its first byte on, 32 bytes at a time. Payloads
// begin 2, 6, ... or 30 bytes into a word, as every header is a multiple of 4 bytes but Ethernet's
// of 14. A word in and one out a cycle; what a packet leaves over goes out beside the next one's
// first word, which never holds payload.
module payload_extractor (
    input  logic         clk,
    input  logic         rst,
    input  logic         in_valid,
    output logic         in_ready,
    input  logic [255:0] in_data,
    input  logic [  5:0] in_bytes,            // 1 to 32; 32 but for a packet's last
    input  logic         in_last,
    input  logic         class_valid,         // one for each packet
    output logic         class_ready,
    input  logic         class_change,        // 0: nothing of this packet is wanted
    input  logic [  7:0] class_header_bytes,
    input  logic [ 15:0] class_payload_bytes,
    output logic         out_valid,
    input  logic         out_ready,
    output logic [255:0] out_data,            // bytes at and above out_bytes are 0
    output logic [  5:0] out_bytes,
    output logic         out_last,
    output logic         out_truncated,       // with out_last: the packet ended before its payload
    output logic [ 15:0] out_total            // the class's payload_bytes
);
  logic inside_packet;  // its first word has been taken
  logic wanted;         // payload of it is still to come
  logic started;        // `previous` holds payload
  logic pending;        // `previous` holds all that is left of a payload
  logic pending_truncated;
  logic [255:0] previous;
  logic [  2:0] offset;  // payload begins at byte 4 offset + 2 of a word
  logic [  2:0] lead;    // words before the one in which it begins
  logic [ 16:0] left;    // bytes from the next word's first to the payload's end
  logic [ 15:0] rest;    // bytes of payload that have not gone out
  logic [ 15:0] total;

  logic slot, take, is_payload, emit, ends, cut;
  logic [ 16:0] packet_left;
  logic [511:0] both;
  logic [255:0] group, mask;
  logic [  5:0] group_bytes;
  always_comb begin
    slot = !out_valid || out_ready;
    in_ready = slot && (inside_packet || class_valid);
    take = in_valid && in_ready;
    class_ready = take && !inside_packet;
    packet_left = {1'b0, class_payload_bytes} + {9'd0, class_header_bytes};
    is_payload = inside_packet && wanted && lead == 3'd0;
    emit = take && is_payload && started;
    ends = left <= 17'd32;
    cut = in_last && {11'd0, in_bytes} < left;

    both = {pending ? 256'd0 : in_data, previous};
    group = 256'(both >> {offset, 5'd16});
    group_bytes = rest >= 16'd32 ? 6'd32 : rest[5:0];
    for (int i = 0; i < 32; i = i + 1) mask[8*i+:8] = 6'(i) < group_bytes ? 8'hFF : 8'h00;
  end

  always_ff @(posedge clk) begin
    if (slot) begin
      out_data <= group & mask;
      out_bytes <= group_bytes;
      out_total <= total;
      out_last <= pending || cut || (ends && rest <= 16'd32);
      out_truncated <= pending ? pending_truncated : cut;
    end
    if (take) begin
      previous <= in_data;
      if (!inside_packet) begin
        offset <= class_header_bytes[4:2];
        lead <= class_header_bytes[7:5] - 3'd1;
        left <= packet_left - 17'd32;
        rest <= class_payload_bytes;
        total <= class_payload_bytes;
      end else begin
        left <= left - 17'd32;
        if (lead != 3'd0) lead <= lead - 3'd1;
        if (emit) rest <= rest - {10'd0, group_bytes};
      end
    end
    if (rst) begin
      out_valid <= 1'b0;
      inside_packet <= 1'b0;
      wanted <= 1'b0;
      started <= 1'b0;
      pending <= 1'b0;
    end else begin
      if (slot) begin
        out_valid <= pending || emit;
        pending <= 1'b0;
      end
      if (take) begin
        inside_packet <= !in_last;
        pending_truncated <= cut;
        if (!inside_packet) begin
          wanted <= class_change && !in_last;
          started <= 1'b0;
          if (class_change && in_last) begin
            pending <= 1'b1;
            pending_truncated <= 1'b1;
          end
        end else if (wanted && (ends || in_last)) begin
          wanted <= 1'b0;
          // The word's own part goes out next, but for a payload that ends in this group.
          if (!started || !is_payload) pending <= 1'b1;
          else pending <= !cut && rest > 16'd32;
        end else if (is_payload) begin
          started <= 1'b1;
        end
      end
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      a_one : assert (!(pending && emit)) else $error("two groups in one cycle");
      a_bytes : assert (!out_valid || out_bytes inside {[6'd1:6'd32]}) else $error("empty group");
      a_offset : assert (!class_ready || !class_change || class_header_bytes[1:0] == 2'd2)
        else $error("a payload's place");
    end
  end
`endif
endmodule
