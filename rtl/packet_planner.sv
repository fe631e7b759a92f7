// Decides, once a packet's payload has been through, what leaves of it, and what its headers say
// then. Checksums are updated by what changed (RFC 1624), not computed anew: one that was wrong
// stays as wrong as it was, and whoever receives the packet still finds out. The transport's is
// wrong on purpose while a packet is compressed: a host without an engine discards it. A UDP
// packet without a checksum has nothing that could be wrong, and is not changed.
module packet_planner #(
    parameter logic [5:0] NEW_MARK = 6'h0B,  // the code point of a changed packet
    parameter logic [15:0] SUM_CHANGE = 16'h2C00,  // added to its transport checksum's sum
    parameter bit DROP_BAD = 1'b0            // a payload that cannot be changed: drop the packet;
                                             // else it leaves as it came
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        class_valid,
    output logic        class_ready,
    input  logic [ 1:0] class_action,  // as packet_classifier says
    input  logic [ 7:0] class_header_bytes,
    input  logic [15:0] class_payload_bytes,
    input  logic        class_is_udp,
    input  logic [ 6:0] class_l4_at,
    input  logic [ 7:0] class_tos,
    input  logic [15:0] class_total,
    input  logic [15:0] class_ip_sum,
    input  logic [15:0] class_l4_sum,
    input  logic        result_valid,  // one for each packet with action 1
    output logic        result_ready,
    input  logic        result_ok,
    input  logic [15:0] result_bytes,    // the new payload's
    input  logic [15:0] result_old_sum,  // ones' complement sums of both payloads
    input  logic [15:0] result_new_sum,
    output logic        plan_valid,
    input  logic        plan_ready,
    output logic        plan_send_old,   // neither of the two: drop
    output logic        plan_send_new,
    output logic        plan_has_payload,  // there is a new payload, whether it leaves or not
    output logic [ 7:0] plan_header_bytes,
    output logic [16:0] plan_frame_bytes,  // of a new packet
    output logic        plan_is_udp,
    output logic [ 6:0] plan_l4_at,
    output logic [ 7:0] plan_tos,
    output logic [15:0] plan_total,
    output logic [15:0] plan_l4_bytes,
    output logic [15:0] plan_ip_sum,
    output logic [15:0] plan_l4_sum
);
  // Two registers: sums, then the sums folded to 16 bits.
  logic mid_valid, mid_send_old, mid_send_new, mid_has_payload, mid_is_udp;
  logic is_change, is_good, take, enable, mid_enable;
  logic [15:0] new_total;
  always_comb begin
    enable = !plan_valid || plan_ready;
    mid_enable = !mid_valid || enable;  // a plan is ready as soon as the one before has left
    is_change = class_action == 2'd1;
    is_good = result_ok && !(class_is_udp && class_l4_sum == 16'd0);
    take = mid_enable && class_valid && (!is_change || result_valid);
    class_ready = take;
    result_ready = take && is_change;
    new_total = class_total - class_payload_bytes + result_bytes;
  end

  logic [ 7:0] mid_header_bytes, mid_tos;
  logic [ 6:0] mid_l4_at;
  logic [15:0] mid_total, mid_bytes;
  logic [18:0] mid_ip_sum, mid_l4_sum;
  always_ff @(posedge clk) begin
    if (mid_enable) begin
      mid_send_old <= class_action == 2'd0 || is_change && !is_good && !DROP_BAD;
      mid_send_new <= is_change && is_good;
      mid_has_payload <= is_change;
      mid_header_bytes <= class_header_bytes;
      mid_is_udp <= class_is_udp;
      mid_l4_at <= class_l4_at;
      mid_tos <= {NEW_MARK, class_tos[1:0]};
      mid_total <= new_total;
      mid_bytes <= result_bytes;
      // The length and the code point; the other half of the latter's pair of bytes stays.
      mid_ip_sum <= {3'd0, ~class_ip_sum} + {3'd0, ~class_total} + {3'd0, new_total} +
          {3'd0, 8'hFF, ~class_tos} + {11'd0, NEW_MARK, class_tos[1:0]};
      // The length is in the pseudo-header, and in UDP's own header once more.
      mid_l4_sum <= {3'd0, ~class_l4_sum} + {3'd0, ~result_old_sum} + {3'd0, result_new_sum} +
          {3'd0, ~class_total} + {3'd0, new_total} + {3'd0, SUM_CHANGE} +
          (class_is_udp ? {3'd0, ~class_total} + {3'd0, new_total} : 19'd0);
    end
  end

  logic [16:0] ip_folded, l4_folded;
  logic [15:0] ip_sum, l4_sum;
  always_comb begin
    ip_folded = {1'b0, mid_ip_sum[15:0]} + {14'd0, mid_ip_sum[18:16]};
    l4_folded = {1'b0, mid_l4_sum[15:0]} + {14'd0, mid_l4_sum[18:16]};
    ip_sum = ~(ip_folded[15:0] + {15'd0, ip_folded[16]});
    l4_sum = ~(l4_folded[15:0] + {15'd0, l4_folded[16]});
    if (mid_is_udp && l4_sum == 16'd0) l4_sum = 16'hFFFF;  // 0 would say that there is none
  end

  always_ff @(posedge clk) begin
    if (enable) begin
      plan_send_old <= mid_send_old;
      plan_send_new <= mid_send_new;
      plan_has_payload <= mid_has_payload;
      plan_header_bytes <= mid_header_bytes;
      plan_frame_bytes <= {9'd0, mid_header_bytes} + {1'b0, mid_bytes};
      plan_is_udp <= mid_is_udp;
      plan_l4_at <= mid_l4_at;
      plan_tos <= mid_tos;
      plan_total <= mid_total;
      plan_l4_bytes <= mid_bytes + 16'd8;
      plan_ip_sum <= ip_sum;
      plan_l4_sum <= l4_sum;
    end
    if (rst) begin
      mid_valid <= 1'b0;
      plan_valid <= 1'b0;
    end else begin
      if (mid_enable) mid_valid <= take;
      if (enable) plan_valid <= mid_valid;
    end
  end
endmodule
