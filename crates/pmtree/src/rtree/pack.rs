//! Packing children into full nodes, for trees whose inner nodes are made anew.

use super::rect::Rect;

/// Puts children into as few nodes as possible: they are cut along the axis on which they reach
/// farthest, at whole nodes, until they fit into one. `nodes` gets the children of each node.
pub(super) fn pack<const D: usize, T: Clone>(
    children: &mut [(T, Rect<D>)],
    fan_out: usize,
    nodes: &mut Vec<Vec<(T, Rect<D>)>>,
) {
    if children.len() <= fan_out {
        nodes.push(children.to_vec());
        return;
    }
    let rect = children.iter().skip(1).fold(children[0].1, |all, (_, rect)| all.union(rect));
    let extent = |axis: usize| rect.max()[axis] - rect.min()[axis];
    let axis = (0..D).max_by(|left, right| extent(*left).total_cmp(&extent(*right))).unwrap_or(0);
    // A box without entries has no centre, and any place is as good.
    let centre = |(_, rect): &(T, Rect<D>)| rect.min()[axis] / 2.0 + rect.max()[axis] / 2.0;
    let parts = children.len().div_ceil(fan_out);
    let place = children.len() * (parts / 2) / parts;
    children.select_nth_unstable_by(place, |left, right| centre(left).total_cmp(&centre(right)));
    let (left, right) = children.split_at_mut(place);
    pack(left, fan_out, nodes);
    pack(right, fan_out, nodes);
}
