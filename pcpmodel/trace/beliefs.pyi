from typing_extensions import disjoint_base

from pcpmodel.trace.page_lists import PageLists

@disjoint_base
class Beliefs(PageLists):
    effort: int
    most_states: int
    nr_cut: int
